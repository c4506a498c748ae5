"""Promises of docs/rules.md that were read against the program, and were not kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rowmill.executors.caps import STOPPED_EARLY
from rowmill.report.export import export
from rowmill.report.named import Names
from rowmill.report.run import open_view
from rowmill.report.trace import trace
from tests.cases.command import OK, SOME_FAILED, job, rowmill, run
from tests.cases.compare import by_id, read_records

SLOW_FIRST = ["x SLOW first", "b", "x later", "c"]


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answers(out: Path) -> list[dict[str, Any]]:
    return [r for part in sorted((out / "results").iterdir()) for r in read_records(part)]


def test_a_retry_of_the_first_row_of_a_repeated_id_answers_it(tmp_path: Path) -> None:
    rows = [{"id": text[0], "text": text} for text in SLOW_FIRST]
    source, out = lines(tmp_path / "rows.jsonl", rows), tmp_path / "out"
    faults = '[{contains = "SLOW", action = "transient"}]'
    sets = {"validate.first_rows": 1, "plan.window_rows": 2, "engine.faults": faults}
    assert run(source, out, sets={**sets, "prompt": "{text}"}).code == SOME_FAILED

    again = rowmill("retry", [str(out), "--kind", "transient", "--set", "engine.faults=[]"])

    assert again.code == SOME_FAILED
    found = [(r["text"], r["rowmill_status"]) for r in answers(out)]
    assert found == [("x SLOW first", "ok"), ("b", "ok"), ("x later", "error"), ("c", "ok")]
    assert "rows.jsonl:1" in answers(out)[2]["rowmill_error"]


def test_caps_count_equal_rows_once_and_cost_is_that_of_the_end(tmp_path: Path) -> None:
    source = lines(tmp_path / "rows.jsonl", [{"text": "one two three"} for _ in range(40)])
    sets = {
        "prompt": "{text}",
        "sampling.temperature": 0,
        "run.prompt_million_price": 1000,
        "run.output_million_price": 1000,
    }
    whole = run(source, tmp_path / "whole", sets=sets)
    asked = whole.told["prompt_tokens"] + whole.told["output_tokens"]

    capped = run(source, tmp_path / "out", sets={**sets, "run.max_total_tokens": asked + 1})

    assert (whole.code, capped.code) == (OK, OK)
    one = answers(tmp_path / "whole")[0]
    assert asked == one["rowmill_prompt_tokens"] + one["rowmill_output_tokens"]
    assert whole.told["cost"] == round(asked / 1000, 6)


def test_echo_gives_a_vector_for_each_chunk(tmp_path: Path) -> None:
    text = " ".join(f"word{i}" for i in range(40))
    source = lines(tmp_path / "rows.jsonl", [{"id": 1, "text": text}, {"id": 2, "text": "a"}])
    sets = {"kind": "embed", "engine.max_model_len": 20, "validate.too_long": "chunk"}

    assert run(source, tmp_path / "out", sets=sets).code == OK

    found = by_id(answers(tmp_path / "out"))
    chunks = found[1]["rowmill_chunks"]
    assert found[1]["rowmill_embedding"] is None
    assert len(chunks) > 1
    assert {len(chunk["embedding"]) for chunk in chunks} == {len(found[2]["rowmill_embedding"])}
    assert chunks[0]["start"] == 0
    assert chunks[-1]["stop"] == len(text)


def test_trials_keep_no_failed_row_and_stop_where_a_run_would(tmp_path: Path) -> None:
    rows = [{"text": f"row {i} with some words"} for i in range(4000)]
    source, out = lines(tmp_path / "rows.jsonl", rows), tmp_path / "out"
    sets = {"prompt": "{text}", "engine.delay_s": 0.02}
    refusing = {**sets, "engine.faults": '[{contains = "row", action = "error"}]'}

    refused = rowmill("tune", job(source, out, sets=refusing))
    capped = rowmill(
        "tune", job(source, tmp_path / "capped", sets={**sets, "run.max_total_tokens": 2000})
    )

    assert (refused.code, capped.code) == (STOPPED_EARLY, STOPPED_EARLY)
    assert "rows failed, more than `run.max_failed_share`" in refused.stdout + refused.stderr
    assert "`run.max_total_tokens` = 2,000 reached" in capped.stdout + capped.stderr
    after = run(source, out, sets=sets)
    assert (after.code, after.told["ok"]) == (OK, 4000)


def test_a_retry_counts_what_was_paid_before(tmp_path: Path) -> None:
    """The answers that are asked anew were paid for, too."""
    source = lines(tmp_path / "rows.jsonl", [{"text": "one two three"} for _ in range(40)])
    sets = {
        "prompt": "{text}",
        "sampling.schema": '{type = "object"}',
        "run.prompt_million_price": 1000,
        "run.output_million_price": 1000,
    }
    first = run(source, tmp_path / "out", sets=sets)

    again = rowmill("retry", [str(tmp_path / "out"), "--kind", "violation"])

    assert (first.told["violations"], again.told["violations"]) == (40, 40)
    assert again.told["cost"] == pytest.approx(2 * first.told["cost"])


def test_the_id_of_a_bad_row_is_found_as_that_of_a_good_one(tmp_path: Path) -> None:
    source, out = tmp_path / "rows.jsonl", tmp_path / "out"
    source.write_bytes(
        b'{"nr": 1.50, "id": "a", "text": "x"}\n'
        b'{"nr": 2.50, "id": "b", "text": NaN}\n'
        b'{"nr": "z", "id": "c", "text": "caf\xe9"}\n'
    )
    sets = {"prompt": "{text}", "validate.id_column": "nr", "output.format": "jsonl"}

    assert run(source, out, sets=sets).code == SOME_FAILED

    (part,) = (out / "results").iterdir()
    starts = [line.partition(b',"rowmill_')[0] for line in part.read_bytes().splitlines()]
    assert starts[1:] == [b'{"nr":2.50', b'{"nr":"z"']
    view = open_view(str(out))
    names = Names()
    keys = range(3)
    names.look(view, keys)
    assert [names.id_of(key) for key in keys] == ["1.50", "2.50", "z"]
    assert [trace(str(out), id).place for id in ("2.50", "z")] == [
        "rows.jsonl:2",
        "rows.jsonl:3",
    ]
    assert export(str(out), str(tmp_path / "all.jsonl")).rows == 3
    assert (tmp_path / "all.jsonl").read_bytes() == part.read_bytes()


def test_a_line_that_is_read_is_published_as_a_table_however_deep_it_is(tmp_path: Path) -> None:
    """How deep depends on how deep the reader's own stack is."""
    source = tmp_path / "rows.jsonl"
    deep = (
        f'{{"id": {n}, "text": "x", "b": {"[" * n}{"]" * n}}}\n' for n in range(900, 1000, 7)
    )
    source.write_text("".join(deep))

    done = run(source, tmp_path / "out", sets={"prompt": "{text}", "output.format": "parquet"})

    assert done.code in (OK, SOME_FAILED), done.stderr
    (part,) = (tmp_path / "out/results").iterdir()
    found = pq.read_table(part, columns=["rowmill_status", "b"]).to_pylist()
    asked = [(row["rowmill_status"] == "ok", row["b"] is not None) for row in found]
    assert len(asked) == 15
    assert {(True, True)} <= set(asked) <= {(True, True), (False, False)}
