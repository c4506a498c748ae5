"""Case 23: a key given twice is told by name; very deep lines are error rows with their numbers, and no crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import SOME_FAILED, check_whole, job, kill, rowmill, run, start
from tests.cases.compare import Record
from tests.cases.endpoint import Serve
from tests.cases.memory import MIB, MemoryWatch

TWICE = [
    '{"id": "d1", "id": "d2", "prompt": "two ids"}',
    '{"id": "d3", "prompt": "first", "prompt": "second"}',
    '{"id": "d4", "prompt": "x", "meta": {"k": 1, "k": 2}}',
    '{"id": "d5", "messages": [{"role": "user", "content": "a", "content": "b"}]}',
]
DEEP = [
    '{"id": "deep500", "prompt": "ok", "meta": ' + "[" * 500 + "]" * 500 + "}",
    '{"id": "deep100k", "prompt": "x", "meta": ' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"id": "deepobj", "prompt": "x", "meta": ' + '{"a":' * 30_000 + "1" + "}" * 30_000 + "}",
    "[" * 200_000,
]
CASE = '{"id": "case", "ID": "CASE", "Prompt": "upper", "prompt": "lower"}'
AFTER = '{"id": "after", "prompt": "still here"}'
LINES = [*TWICE, CASE, *DEEP, AFTER]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def by_line(records: list[Record]) -> dict[int, Any]:
    return {int(record["rowmill_row"].rpartition(":")[2]): record for record in records}


@pytest.mark.parametrize("engine", ["http", "echo"])
def test_ten_rows_of_which_those_that_are_damaged_say_how(
    tmp_path: Path, serve: Serve, engine: str
) -> None:
    source = write(tmp_path / "input.jsonl", LINES)
    endpoint = serve() if engine == "http" else None

    finished = run(source, tmp_path / "out", endpoint=endpoint)

    # The carried `meta` of line 3 and the 500 levels of line 6 are of no concern to the job.
    assert finished.code == SOME_FAILED
    found = by_line(records_of(tmp_path / "out"))
    errors = {line: record["rowmill_error"] for line, record in found.items()}
    assert [line for line, error in errors.items() if error is None] == [3, 5, 6, 10]
    assert "`id` stands twice" in errors[1]
    assert "`prompt` stands twice" in errors[2]
    assert "the key `content` twice" in errors[4]
    for line in (7, 8, 9):
        assert "nested too deeply" in errors[line]
    assert "id" not in found[1]
    assert found[2]["id"] == "d3"
    if endpoint is not None:
        assert found[5]["rowmill_text"] == "A:8c6fb1e9e37a"
        assert found[10]["rowmill_text"] == "A:0f6203d23a99"
        assert endpoint.hits == 4
    assert len(finished.stderr) < 10_000


def records_of(out: Path) -> list[Record]:
    text = "".join(file.read_text() for file in sorted((out / "results").glob("*.jsonl")))
    return [json.loads(line) for line in text.splitlines()]


def test_rows_that_are_counted_are_whole(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [*TWICE[:2], CASE, AFTER])

    finished = run(source, tmp_path / "out")
    records = check_whole(finished, tmp_path / "out", 4)

    assert [record["rowmill_error_kind"] for record in records] == ["unreadable"] * 2 + [
        None
    ] * 2
    told = rowmill("check", job(source, None))
    assert "`prompt` stands twice" in told.stdout


@pytest.mark.slow
def test_deep_lines_need_little_memory(tmp_path: Path) -> None:
    peaks, keep = [], {"validate.duplicate_ids": "keep"}
    for name, lines in (("flat", [AFTER] * 40), ("deep", [*DEEP, AFTER] * 8)):
        source = write(tmp_path / f"{name}.jsonl", lines)
        process = start(job(source, tmp_path / name, sets=keep), tmp_path / f"{name}.log")
        watch = MemoryWatch(process.pid)
        try:
            assert process.wait(120) in (0, SOME_FAILED)
        finally:
            peaks.append(watch.close())
            kill(process)

    assert peaks[1] - peaks[0] < 200 * MIB
