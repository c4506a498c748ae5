"""Case 18: bytes that are no UTF-8 cost their row alone; NUL and control characters survive, unprinted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.command import (
    INPUTS,
    SOME_FAILED,
    check_refused,
    check_whole,
    job,
    rowmill,
    run,
)
from tests.cases.compare import by_id, differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "18"
SOURCE = CASE / "input.jsonl"
EXPECTED = read_records(CASE / "expected.jsonl")
PROMPTS = {
    "good-1": "naïve",
    "nul-escape": "a\0b",
    "ctrl-escape": "bell\x07 esc\x1b[31m",
    "good-2": "fin",
    "noncharacter": "\uffff",
}


@pytest.mark.parametrize(
    "format_",
    [
        pytest.param("jsonl", marks=pytest.mark.slow),
        "parquet",
        pytest.param("arrow", marks=pytest.mark.slow),
    ],
)
def test_three_row_errors_and_five_answers(tmp_path: Path, serve: Serve, format_: str) -> None:
    endpoint = serve()

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint, sets={"output.format": format_})
    records = check_whole(finished, tmp_path / "out", 8)

    assert finished.code == SOME_FAILED
    assert differences(EXPECTED, records) == []
    failed = [r["rowmill_row"] for r in records if r["rowmill_error"] is not None]
    assert failed == ["input.jsonl:2", "input.jsonl:3", "input.jsonl:5"]
    assert {id_: by_id(records)[id_]["prompt"] for id_ in PROMPTS} == PROMPTS
    assert sorted(body["prompt"] for body in endpoint.bodies()) == sorted(PROMPTS.values())
    assert any("a\\u0000b" in request["body"] for request in endpoint.requests())
    assert "\ufffd" not in str(records)


def test_answers_with_nul_and_control_characters_survive_in_tables(tmp_path: Path) -> None:
    sets = {"output.format": "parquet", "sampling.max_tokens": 100}

    finished = run(SOURCE, tmp_path / "out", sets=sets)
    found = by_id(check_whole(finished, tmp_path / "out", 8))

    assert {id_: found[id_]["rowmill_text"] for id_ in PROMPTS} == PROMPTS


def test_no_command_prints_a_raw_escape(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    bad = b'{"id": "\\u001b[31m", "prompt": null, "\\u001b[2J": 1}\n{"\\u001b[2J": 1}\n'
    source.write_bytes(SOURCE.read_bytes() + bad)
    spoken = []
    for verb, arguments in [
        ("check", job(source, None)),
        ("run", job(source, out)),
        ("status", [str(out)]),
        ("trace", [str(out), "in.jsonl:6"]),
        ("trace", [str(out), "in.jsonl:9"]),
    ]:
        finished = rowmill(verb, arguments, as_json=False)
        spoken.append(finished.stdout + finished.stderr)

    assert all(spoken)
    assert [words for words in spoken if "\x1b" in words or "\x07" in words] == []


@pytest.mark.parametrize("engine", ["http", pytest.param("echo", marks=pytest.mark.slow)])
def test_utf16_is_refused_as_a_whole_by_its_name(
    tmp_path: Path, serve: Serve, engine: str
) -> None:
    endpoint = serve() if engine == "http" else None

    words = check_refused(
        run(CASE / "utf16.jsonl", tmp_path / "out", endpoint=endpoint), endpoint=endpoint
    )

    assert "utf16.jsonl" in words
    assert "UTF-16" in words
