"""Whether a contender's output is complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowmill.bench.answers import (
    Answer,
    as_echoed,
    batch_answers,
    checked,
    plain_answers,
    rowmill_answers,
)
from rowmill.bench.records import Work


@pytest.fixture
def work(tmp_path: Path) -> Work:
    path = tmp_path / "in.jsonl"
    path.write_text(
        "".join(f'{{"id":"{name}","max_tokens":{n}}}\n' for name, n in (("a", 2), ("b", 3)))
    )
    return Work(str(path), 2, 20, 5)


A, B = Answer("a", 10, 2, 4), Answer("b", 10, 3, 0)


def test_whole_answers_are_counted(work: Work) -> None:
    run = checked(work, [B, A], 2.0)

    assert run.invalid == ""
    assert (run.rows, run.prompt_tokens, run.output_tokens, run.cached_tokens) == (2, 20, 5, 4)
    assert run.seconds == 2.0


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([A], "1 answers missing"),
        ([A, B, B], "1 answers there twice"),
        ([A, B, Answer("c", 1, 1, 0)], "1 answers of ids nobody asked for"),
        ([A, Answer("b", 10, 2, 0)], "1 answers of another length than asked"),
        ([A, Answer("b", 10, 3, 0, is_ok=False)], "1 answers failed"),
        ([A, Answer("b", 11, 3, 0)], "21 prompt tokens instead of 20"),
        ([], "2 answers missing"),
    ],
)
def test_what_is_not_whole_is_invalid_and_says_why(
    work: Work, answers: list[Answer], reason: str
) -> None:
    assert checked(work, answers, 1.0).invalid == reason


def test_echo_answers_no_more_than_the_prompt(work: Work) -> None:
    answers = [Answer("a", 1, 1, 0), Answer("b", 19, 3, 0)]

    assert checked(work, answers, 1.0, expected=as_echoed).invalid == ""


def test_outputs_of_each_kind_are_read(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    found = {"response": {"body": {"usage": {**usage, "prompt_tokens_details": None}}}}
    cached = {
        "response": {
            "body": {"usage": {**usage, "prompt_tokens_details": {"cached_tokens": 4}}}
        }
    }
    lines = [
        {"custom_id": "x", **found, "error": None},
        {"custom_id": "a", **cached, "error": None},
        {"custom_id": "b", "response": {"status_code": 400, "body": None}, "error": {"a": 1}},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert list(batch_answers(path)) == [
        Answer("x", 10, 2, 0),
        A,
        Answer("b", 0, 0, 0, is_ok=False),
    ]

    row = {"id": "a", "prompt_tokens": 10, "output_tokens": 2, "cached_tokens": 4}
    path.write_text(json.dumps(row) + "\n")
    assert list(plain_answers(path)) == [A]

    named = {f"rowmill_{key}": value for key, value in row.items() if key != "id"}
    path.write_text(json.dumps({"id": "a", **named, "rowmill_status": "ok"}) + "\n")
    assert list(rowmill_answers([path])) == [A]
