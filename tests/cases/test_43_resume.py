"""Case 43: a resume asks what is not done, no row twice, none never; a changed input is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import (
    INPUTS,
    OK,
    SOME_FAILED,
    Arguments,
    check_refused,
    check_whole,
    job,
    kill,
    results,
    rowmill,
    run,
    start,
)
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Endpoint, Serve

CASE = INPUTS / "43"
EXPECTED = read_records(CASE / "expected.jsonl")
EXPECTED_400 = read_records(CASE / "expected_400.jsonl")
SEATS = 16
CHECKPOINT = {"run.checkpoint_s": 0.2}
CHECKPOINT_ROWS = SEATS
"""Outcomes go to the disk as they come; what a kill may repeat beside the seats is one message of the engine."""


def half_done(arguments: Arguments, endpoint: Endpoint, log: Path, *, hits: int) -> None:
    process = start(arguments, log)
    endpoint.wait_hits(hits, process)
    kill(process)


def test_three_kills_lose_no_row_and_repeat_few(tmp_path: Path, serve: Serve) -> None:
    endpoint, out = serve(delay_s=0.05), tmp_path / "out"
    arguments = job(CASE / "in", out, endpoint=endpoint, sets=CHECKPOINT)
    for hits in (50, 140, 260):
        half_done(arguments, endpoint, tmp_path / "words", hits=hits)

    finished = rowmill("run", arguments)
    records = check_whole(finished, out, 300)

    assert finished.code == OK
    assert differences(EXPECTED, records) == []
    assert endpoint.hits <= 300 + 3 * SEATS + 3 * CHECKPOINT_ROWS


def test_failed_rows_are_done_until_retried(tmp_path: Path, serve: Serve) -> None:
    faulty, out = serve(plan=CASE / "plan_400.json"), tmp_path / "out"
    arguments = job(CASE / "in", out, endpoint=faulty)

    finished = rowmill("run", arguments)
    assert finished.code == SOME_FAILED
    assert differences(EXPECTED_400, check_whole(finished, out, 300)) == []
    assert faulty.hits == 300

    again = rowmill("run", arguments)
    assert differences(EXPECTED_400, check_whole(again, out, 300)) == []
    assert again.code == SOME_FAILED
    assert again.told["engine_start_s"] == 0
    assert faulty.hits == 300

    faulty.close()
    healthy = serve(port=faulty.port)
    retried = rowmill("retry", [str(out)])
    assert retried.code == OK, retried.stderr
    assert differences(EXPECTED, results(out)) == []
    assert healthy.hits == 11


def test_retry_of_one_kind_leaves_the_others(tmp_path: Path, serve: Serve) -> None:
    faulty, out = serve(plan=CASE / "plan_400.json"), tmp_path / "out"
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": 1, "prompt": "x"}\n{"id": 2}\n{"id": 3, "prompt": "flaky"}\n')
    assert run(source, out, endpoint=faulty).code == SOME_FAILED
    faulty.close()
    healthy = serve(port=faulty.port)

    retried = rowmill("retry", [str(out), "--kind", "refused"])

    assert retried.code == SOME_FAILED, retried.stderr
    assert [r["rowmill_error_kind"] for r in results(out)] == [None, "missing_column", None]
    assert healthy.hits == 1


def test_changed_input_is_refused_naming_the_files(tmp_path: Path, serve: Serve) -> None:
    endpoint, out = serve(delay_s=0.02), tmp_path / "out"
    source = tmp_path / "in"
    shutil.copytree(CASE / "in", source)
    arguments = job(source, out, endpoint=endpoint)
    half_done(arguments, endpoint, tmp_path / "words", hits=100)
    hits = endpoint.hits
    for file in (CASE / "in_changed").iterdir():
        shutil.copy(file, source / file.name)

    words = check_refused(rowmill("run", arguments), endpoint=endpoint, hits=hits)

    assert all(f"`{name}.jsonl`" in words for name in ("f0", "f1", "f2"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished run of the echo: its input folder and its output."""
    folder = tmp_path_factory.mktemp("done")
    shutil.copytree(CASE / "in", folder / "in")
    finished = run(folder / "in", folder / "out")
    check_whole(finished, folder / "out", 300)
    return folder / "in", folder / "out"


def test_second_start_loads_nothing_and_ends_as_the_first(done: tuple[Path, Path]) -> None:
    source, out = done
    before = (out / "results/part-00000.jsonl").read_bytes()

    finished = run(source, out)

    assert finished.code == OK
    assert finished.told["engine_start_s"] == 0
    assert finished.told["ok"] == 300
    assert (out / "results/part-00000.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "sets",
    [
        {"sampling.temperature": 0.5},
        {"sampling.max_tokens": 7},
        {"prompt": "Say {prompt}"},
        {"validate.too_long": "clamp_max_tokens"},
        {"engine.max_model_len": 100},
    ],
    ids=lambda sets: next(iter(sets)),
)
def test_another_identity_is_refused_naming_the_setting(
    done: tuple[Path, Path], sets: dict[str, Any]
) -> None:
    source, out = done
    ((name, value),) = sets.items()

    words = check_refused(run(source, out, sets=sets))

    assert name.rpartition(".")[2] in words
    assert str(value) in words


def test_settings_of_effort_alone_are_no_other_identity(done: tuple[Path, Path]) -> None:
    source, out = done
    sets = {"engine.seats": 3, "run.checkpoint_s": 9, "plan.window_rows": 50}

    assert run(source, out, sets=sets).code == OK


def added(folder: Path) -> None:
    (folder / "f3.jsonl").write_text('{"id": "new", "prompt": "p"}\n')


def removed(folder: Path) -> None:
    (folder / "f1.jsonl").unlink()


def renamed_and_changed(folder: Path) -> None:
    (folder / "f2.jsonl").rename(folder / "g2.jsonl")
    text = (folder / "g2.jsonl").read_bytes()
    (folder / "g2.jsonl").write_bytes(text.replace(b"prompt", b"PROMPT", 1))


@pytest.mark.parametrize("change", [added, removed, renamed_and_changed])
def test_files_that_come_or_go_are_a_changed_input(tmp_path: Path, change: Any) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(CASE / "in", source)
    assert run(source, out).code == OK
    change(source)

    words = check_refused(run(source, out))

    names = {added: ["f3"], removed: ["f1"], renamed_and_changed: ["f2", "g2"]}[change]
    assert all(f"`{name}.jsonl`" in words for name in names)


def test_a_file_that_was_renamed_is_the_input_that_it_was(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(CASE / "in", source)
    assert run(source, out).code == OK
    (source / "f2.jsonl").rename(source / "0.jsonl")

    again = run(source, out)

    assert (again.code, again.told["asked"]) == (OK, 0), again.stderr
