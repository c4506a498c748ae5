"""Case 32: lines of a batch file go to the endpoint that they name, or fail by themselves; output is a batch file too."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import INPUTS, SOME_FAILED, rowmill
from tests.cases.compare import read_records
from tests.cases.endpoint import Endpoint, Serve

CASE = INPUTS / "32"
EXPECTED = {line["id"]: line for line in read_records(CASE / "expected.jsonl")}
ORDER = [line["custom_id"] for line in read_records(CASE / "input.jsonl")]


def run_batch(endpoint: Endpoint, out: Path, *options: str) -> Any:
    words = ["-i", str(CASE / "input.jsonl"), "-o", str(out), "--model", "tiny"]
    return rowmill("run-batch", [*words, "--url", endpoint.url, *options])


def is_answer(line: dict[str, Any]) -> bool:
    return line["error"] is None and line["response"]["status_code"] == 200


@pytest.fixture(scope="module")
def endpoint(serve: Serve) -> Endpoint:
    return serve()


@pytest.fixture(scope="module")
def lines(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("32") / "out.jsonl"
    finished = run_batch(endpoint, out)
    assert finished.code == SOME_FAILED
    assert (finished.told["ok"], finished.told["error"]) == (5, 11)
    return read_records(out)


def test_every_line_is_there_once_in_order_and_as_expected(lines: list[dict[str, Any]]) -> None:
    assert ORDER == [line["custom_id"] for line in lines]
    for line in lines:
        assert {"id", "custom_id", "response", "error"} == set(line)
        expected = EXPECTED[line["custom_id"]]
        if expected["outcome"] != "any":
            assert (expected["outcome"] == "ok") == is_answer(line), line
        for word in expected.get("contains", ()):
            assert word in line["error"]["error"]["message"]
        if not is_answer(line):
            assert line["response"]["status_code"] >= 400
            assert line["response"]["body"] is None


def test_answers_are_bodies_as_they_came(lines: list[dict[str, Any]]) -> None:
    body = {line["custom_id"]: line["response"]["body"] for line in lines}

    assert "A:60b1e4482b8d" == body["chat"]["choices"][0]["message"]["content"]
    assert "A:fd8fc2e259e1" == body["no-model"]["choices"][0]["message"]["content"]
    assert "text_completion" == body["compl"]["object"]
    assert [0, 1] == [vector["index"] for vector in body["emb2"]["data"]]
    assert 8 == len(body["emb"]["data"][0]["embedding"])


def test_each_request_went_to_the_path_of_its_line(
    lines: list[dict[str, Any]], endpoint: Endpoint
) -> None:
    del lines
    seen = Counter(request["path"] for request in endpoint.requests())

    assert {"/v1/chat/completions": 2, "/v1/completions": 1, "/v1/embeddings": 2} == seen


def test_failures_go_apart_in_the_dialect_of_openai(tmp_path: Path, serve: Serve) -> None:
    out, aside = tmp_path / "out.jsonl", tmp_path / "out.errors.jsonl"

    finished = run_batch(serve(), out, "--dialect", "openai")

    assert [str(out), str(aside)] == finished.told["files"]
    good, bad = read_records(out), read_records(aside)
    assert (5, 11) == (len(good), len(bad))
    assert all(map(is_answer, good))
    assert sorted(ORDER) == sorted(line["custom_id"] for line in (*good, *bad))
    for line in bad:
        assert line["response"] is None
        assert {"code", "message"} == set(line["error"])


def test_a_file_of_either_dialect_is_counted_by_status(
    tmp_path: Path, lines: list[dict[str, Any]]
) -> None:
    alone, foreign = tmp_path / "alone.jsonl", tmp_path / "openai.jsonl"
    alone.write_text("".join(json.dumps(line) + "\n" for line in lines))
    answers = [line for line in lines if is_answer(line)]
    foreign.write_text("".join(json.dumps(line) + "\n" for line in answers))
    refused = {
        "status_code": 429,
        "request_id": "r",
        "body": {"error": {"message": "slow down"}},
    }
    expired = {"code": "batch_expired", "message": "not done in time"}
    apart = [
        {"id": "b", "custom_id": "x", "response": refused, "error": None},
        {"id": "b", "custom_id": "y", "response": None, "error": expired},
    ]
    aside = tmp_path / "openai.errors.jsonl"
    aside.write_text("".join(json.dumps(line) + "\n" for line in apart))

    ours, theirs = (rowmill("status", [str(file)]).told for file in (alone, foreign))

    assert (5, 11, 0) == (ours["ok"], ours["failed"], ours["unreadable"])
    assert (5, 2) == (theirs["ok"], theirs["failed"])
    assert [[429, "slow down", 1], [0, "not done in time", 1]] == theirs["errors"]
    assert 42 == theirs["output_tokens"]
