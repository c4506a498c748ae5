"""Pairs over endpoints: rankings come back as scores in the order of the row, and half an answer is asked again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from rowmill import engines
from rowmill.config import Job
from rowmill.engines import http
from rowmill.engines.http_kinds import read_scores
from rowmill.engines.judging import judge_of
from rowmill.executors.opening import understand
from rowmill.rows import Outcome, Row
from rowmill.testing import check_engine
from tests.engines.feeds import answers_of

pytest.importorskip("aiohttp")

ROWS = [
    {"query": "abc", "documents": ["xyz", "abd", "abc", "aaaa"]},
    {"query": "m", "documents": ["m"]},
    {"query": "bad", "documents": ["refused"]},
    {"query": "late", "documents": ["late", "l"]},
]


def shared(query: str, document: str) -> float:
    return len(set(query) & set(document)) / len(set(query))


class Scorer(BaseHTTPRequestHandler):
    """An endpoint as Jina and Cohere have it, and vLLM's `/score`."""

    seen: list[tuple[str, dict[str, Any]]]
    late: set[str]

    def do_GET(self) -> None:
        self._say(200, {"data": [{"id": "scorer"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.path, asked))
        query = asked.get("query") or asked["text_1"]
        scores = [shared(query, one) for one in asked.get("documents") or asked["text_2"]]
        if query == "bad":
            self._say(400, {"error": {"message": "not this one"}})
            return
        parts = list(enumerate(scores))
        if query == "late" and query not in self.late:
            self.late.add(query)
            parts.pop()  # half an answer, once
        if self.path == "/score":
            self._say(200, {"data": [{"index": i, "score": score} for i, score in parts]})
            return
        best = sorted(parts, key=lambda part: -part[1])
        found = [{"index": i, "relevance_score": score} for i, score in best]
        self._say(200, {"results": found, "usage": {"total_tokens": 9}})

    def log_message(self, *args: Any) -> None:
        del args

    def _say(self, status: int, found: Any) -> None:
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def url() -> Iterator[str]:
    Scorer.seen, Scorer.late = [], set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scorer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def answers(kind: str, url: str, rows: list[dict[str, Any]], **engine: Any) -> list[Outcome]:
    job = Job.model_validate(
        {"kind": kind, "engine": {"url": url, "back_off_s": 0.01, **engine}}
    )
    words = understand(job)
    requests = [
        words.recipe.request(Row(key, json.dumps(row).encode())) for key, row in enumerate(rows)
    ]
    prompts = words.measure.prompts(requests, lambda _, error: pytest.fail(str(error)))
    opened = engines.open_engine(words.job.engine)
    return judge_of(words.job.engine, opened.limits).judged(answers_of(opened, prompts))


@pytest.mark.parametrize(
    ("pairs", "root", "path"),
    [("rerank", "/v2", "/v2/rerank"), ("rerank", "", "/v1/rerank"), ("score", "/v1", "/score")],
)
def test_documents_are_scored_in_their_order(
    url: str, pairs: str, root: str, path: str
) -> None:
    found = answers("rerank", url + root, ROWS, pairs=pairs)

    assert found[0].scores == pytest.approx([0, 2 / 3, 1, 1 / 3])
    assert found[0].ranking == [2, 1, 3, 0]
    assert found[1].ranking == [0]
    assert (found[2].status, found[2].error_kind) == ("error", "refused")
    assert found[3].scores == pytest.approx([1, 0.25])
    assert found[3].attempts == 2
    assert {seen for seen, _ in Scorer.seen} == {path}
    assert all("top_n" not in asked for _, asked in Scorer.seen)


def test_a_pair_is_a_ranking_of_one(url: str) -> None:
    (found,) = answers("score", f"{url}/v2", [{"query": "ab", "document": "b"}], model="m")

    assert found.score == 0.5
    assert Scorer.seen == [("/v2/rerank", {"model": "m", "query": "ab", "documents": ["b"]})]


def test_contract(url: str) -> None:
    rows = [{"query": "abc", "documents": ["a", "b"]}] * 2 + ROWS[:3]
    job = Job.model_validate({"kind": "rerank", "engine": {"url": url, "back_off_s": 0.01}})
    words = understand(job)
    requests = [
        words.recipe.request(Row(key, json.dumps(row).encode())) for key, row in enumerate(rows)
    ]
    prompts = words.measure.prompts(requests, lambda _, error: pytest.fail(str(error)))

    assert len(check_engine(http, words.job.engine, rows=prompts)) == 5


def test_a_score_that_is_null_is_no_number_and_not_asked_for_again() -> None:
    asked = json.dumps({"query": "a", "documents": ["b", "c"]}).encode()
    found = {
        "results": [{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": None}]
    }

    first, second = (np.frombuffer(one, "<f4")[0] for one in read_scores(found, asked))

    assert np.isnan(first)
    assert second == 0.5
