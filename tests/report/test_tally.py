"""What is counted of outcomes, against the results themselves."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import rowmill
from rowmill.executors.local import retry
from rowmill.executors.retrying import stored_job
from rowmill.report import open_view
from rowmill.report.tally import MAX_NAMED, Rows, Tally, Tallying
from rowmill.storage import open_storage
from tests.report.runs import FAULTS


def results(output: Path) -> list[dict[str, Any]]:
    parts = sorted((output / "results").iterdir())
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def tally(output: Path) -> Tally:
    return Tallying().look(open_view(str(output)))


def test_counts_are_those_of_the_results(small_run: Path) -> None:
    rows, found = results(small_run), tally(small_run)
    well = [row for row in rows if row["rowmill_status"] == "ok"]

    kinds = Counter(row["rowmill_error_kind"] for row in rows if row["rowmill_error_kind"])
    assert kinds == {kind: failed.number for kind, failed in found.failures.items()}
    cut = [row for row in well if row["rowmill_finish_reason"] == "length"]
    assert len(cut) == found.truncated.number > 0
    assert {60: len(cut)} == found.limits
    tokens = sum(row["rowmill_output_tokens"] for row in well)
    assert tokens == found.answers.total == found.counts.output_tokens
    assert max(row["rowmill_prompt_tokens"] for row in rows) == found.prompts.longest
    tries = Counter(row["rowmill_attempts"] for row in rows if row["rowmill_attempts"])
    assert tries == found.tries
    assert found.tries[3] == 60  # FLAKY: answered at the third attempt


def test_the_first_rows_of_each_kind_are_named(small_run: Path) -> None:
    view = open_view(str(small_run))
    refused = Tallying().look(view).failures["refused"]

    places = [view.places.place_of(key).rpartition(":")[2] for key in refused.keys]
    assert [str(2 + 50 * i) for i in range(MAX_NAMED)] == places
    assert refused.number == 60


def test_rows_that_are_met_later_may_be_named_first() -> None:
    rows = Rows()
    rows.add(range(100, 200))
    rows.add(range(5, 10))

    assert [*range(5, 10), *range(100, 100 + MAX_NAMED - 5)] == rows.keys
    assert rows.number == 105


def test_what_is_open_counts_as_well(small_run: Path, tmp_path: Path) -> None:
    """A task without its commit is one that somebody still works on."""
    output = shutil.copytree(small_run, tmp_path / "out")
    (output / "commits" / "0000001.json").unlink()

    whole, part = tally(small_run), tally(output)

    assert whole.counts == part.counts
    assert whole.tries == part.tries
    assert whole.truncated.keys == part.truncated.keys


def test_a_tally_is_right_after_rows_were_asked_again(small_run: Path, tmp_path: Path) -> None:
    output = shutil.copytree(small_run, tmp_path / "out")
    tallying = Tallying()
    before = tallying.look(open_view(str(output)))
    faults = [fault for fault in FAULTS if fault["contains"] != "REFUSE"]
    stored = stored_job(open_storage(str(output)))
    again: dict[str, Any] = {**stored, "output.path": str(output), "engine.faults": faults}
    retry(rowmill.load_job(None, settings=again), kinds=["refused"])

    after = tallying.look(open_view(str(output)))

    assert before.failures["refused"].number == 60
    assert "refused" not in after.failures
    assert after.counts.ok == before.counts.ok + 60
