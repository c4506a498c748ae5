"""Bodies that are no choices: a whole answer in order, or none; and refusals that end a job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rowmill import errors
from rowmill.engines.http_answer import Answer, Asked, read_answer
from rowmill.engines.vectors import BadVector


def read(path: str, asked: Any, found: Any, status: int = 200) -> Answer:
    return read_answer(
        status, json.dumps(found).encode(), Asked(path, json.dumps(asked).encode())
    )


def vectors(*indices: int) -> dict[str, Any]:
    return {"data": [{"index": i, "embedding": [float(i), 0.5]} for i in indices]}


def scores(*indices: int) -> dict[str, Any]:
    return {
        "data": [{"index": i, "score": i / 10} for i in indices],
        "usage": {"prompt_tokens": 9},
    }


EMBED, SCORE, RERANK = "/v1/embeddings", "/score", "/v1/rerank"
TWO = {"input": ["a", "b"]}


def test_vectors_are_kept_as_they_came_in_the_order_of_their_inputs() -> None:
    plain, turned = read(EMBED, TWO, vectors(0, 1)), read(EMBED, TWO, vectors(1, 0))

    assert json.loads(bytes(plain.body)) == json.loads(bytes(turned.body)) == vectors(0, 1)
    assert ([], None) == (plain.choices, plain.text)
    assert read(EMBED, {"input": [1, 2, 3]}, vectors(0)).body
    assert read(EMBED, {"input": "a"}, {"data": [{"index": 0, "embedding": "AAAA"}]}).body


@pytest.mark.parametrize(
    ("path", "asked", "found"),
    [
        (EMBED, TWO, vectors(0)),
        (EMBED, TWO, vectors(0, 0)),
        (EMBED, TWO, {"data": None}),
        (EMBED, TWO, {"data": [{"embedding": [1]}, {}]}),
        (SCORE, {"text_1": "q", "text_2": ["a", "b"]}, scores(0)),
        (SCORE, {"text_1": "q", "text_2": "a"}, {"data": [{"index": 0, "score": None}]}),
        (RERANK, {"query": "q", "documents": ["a", "b"]}, {"results": []}),
        ("/v1/responses", {"input": "a"}, {"status": "failed", "output": []}),
        ("/v1/responses", {"input": "a"}, {"output": [{"type": "message"}]}),
        (EMBED, TWO, {"error": {"message": "busy", "code": 503}}),
    ],
)
def test_what_is_not_whole_is_asked_again(path: str, asked: Any, found: Any) -> None:
    with pytest.raises(errors.Transient):
        read(path, asked, found)


@pytest.mark.parametrize("vector", [[], [None, 1.0], [True]])
def test_a_vector_that_no_index_takes_is_told(vector: list[Any]) -> None:
    found = {"data": [{"index": 0, "embedding": vector}]}

    with pytest.raises(BadVector, match="vector 0 of 1"):
        read(EMBED, {"input": "a"}, found)


def test_scores_and_rankings_count_what_was_asked() -> None:
    assert 9 == read(SCORE, {"text_1": "q", "text_2": ["a", "b"]}, scores(0, 1)).prompt_tokens
    one = {"results": [{"index": 1, "relevance_score": 0.5}]}
    asked = {"query": "q", "documents": ["a", "b", "c"], "top_n": 1}
    assert one == json.loads(bytes(read(RERANK, asked, one).body))


def test_a_response_has_its_text_and_its_end() -> None:
    content = [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}]
    message = {"type": "message", "content": content}
    found = {
        "status": "incomplete",
        "output": [{"type": "reasoning", "summary": []}, message],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }

    answer = read("/v1/responses", {"input": "x"}, found)

    assert ("ab", "length", 3, 4) == (
        answer.text,
        answer.finish_reason,
        answer.prompt_tokens,
        answer.output_tokens,
    )


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, {"message": "wrong key"}),
        (402, {"message": "pay first"}),
        (429, {"message": "You exceeded your quota", "code": "insufficient_quota"}),
    ],
)
def test_what_every_row_would_hear_stops_the_job(status: int, error: dict[str, Any]) -> None:
    with pytest.raises(errors.Stopped, match=error["message"]):
        read("/v1/completions", {}, {"error": error}, status)


def test_a_page_in_place_of_an_answer_is_told_by_its_kind() -> None:
    with pytest.raises(errors.Disconnected, match="text/html"):
        read_answer(
            200, b"<html>", Asked("/v1/completions", b""), content_type="text/html; x=y"
        )
