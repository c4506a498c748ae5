"""Labels over endpoints: sums are those of the labels' tokens; an endpoint that tells no log-probabilities gives no label."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from rowmill.config import EngineConfig
from rowmill.engines import http
from rowmill.kinds_config import ClassifyConfig
from rowmill.rows import Prompts, Sampling
from rowmill.testing import check_engine
from rowmill.tokens import ByteTokenizer
from rowmill.tokens.labels import encode_labels
from tests.engines.feeds import answers_of

pytest.importorskip("aiohttp")

LABELS = ClassifyConfig(labels=("yes", "no", "never"), end="\n")
TEXTS = ("good?", "bad, or worse?", "late?")
SILENT = "silent?"


def logprob(before: list[int], token: int) -> float:
    """Of a token behind others; some are impossible."""
    drawn = (31 * sum(before) + 17 * len(before) + token) % 97
    return -math.inf if drawn == 0 else -drawn / 10


class Teller(BaseHTTPRequestHandler):
    """A server that tells the log-probabilities of a prompt's tokens, as vLLM's does; last prompts first."""

    protocol_version = "HTTP/1.1"
    late: set[str]

    def do_GET(self) -> None:
        self._say({"data": [{"id": "teller", "max_model_len": 64}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert (asked["echo"], asked["max_tokens"], asked["model"]) == (True, 0, "teller")
        text = bytes(asked["prompt"][0]).decode()
        told = [self._told(ids, is_silent=SILENT in text) for ids in asked["prompt"]]
        choices = [
            {"index": at, "text": "", "logprobs": one, "finish_reason": "length"}
            for at, one in enumerate(told)
        ][::-1]
        if "late" in text and text not in self.late:
            self.late.add(text)
            choices.pop()  # half an answer, once
        self._say({"choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 0}})

    def _told(self, ids: list[int], *, is_silent: bool) -> dict[str, Any] | None:
        if is_silent:
            return None
        found = [max(-9999.0, logprob(ids[:at], ids[at])) for at in range(1, len(ids))]
        return {"token_logprobs": [None, *found], "tokens": [], "top_logprobs": []}

    def log_message(self, *args: Any) -> None:
        del args

    def _say(self, found: Any) -> None:
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def engine() -> Iterator[EngineConfig]:
    handler = type("OneTeller", (Teller,), {"late": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    yield EngineConfig(
        name="http",
        url=url,
        tokenizer="bytes",
        classify=LABELS,
        max_model_len=64,
        back_off_s=0.01,
    )
    server.shutdown()
    server.server_close()


def prompts(texts: tuple[str, ...]) -> Prompts:
    ids, stops = ByteTokenizer().encode_batch(texts, add_special=False)
    count = len(texts)
    return Prompts(
        list(range(count)), ids, stops, [0] * count, [Sampling()], [0] * count, [], []
    )


def test_sums_are_those_of_the_labels_tokens(engine: EngineConfig) -> None:
    labels, rows = encode_labels(LABELS, ByteTokenizer()), prompts(TEXTS)

    found = sorted(answers_of(http.open(engine), rows), key=lambda outcome: outcome.key)

    for outcome, ids in zip(found, rows.row_ids(), strict=True):
        assert outcome.error is None
        assert isinstance(outcome.embedding, bytes)
        wanted = [
            sum(
                max(-9999.0, logprob([*ids.tolist(), *path[:at]], token))
                for at, token in enumerate(path)
            )
            for path in labels.ids
        ]
        assert wanted == pytest.approx(np.frombuffer(outcome.embedding, "<f4").tolist())
    assert [1, 1, 2] == [outcome.attempts for outcome in found]


def test_an_endpoint_that_tells_nothing_gives_no_label(engine: EngineConfig) -> None:
    (found,) = answers_of(http.open(engine), prompts((SILENT,)))

    assert ("error", "refused") == (found.status, found.error_kind)
    assert "does not tell the log-probabilities of a prompt's tokens" in str(found.error)


def test_the_contract_is_kept(engine: EngineConfig) -> None:
    check_engine(http, engine, rows=prompts(TEXTS))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer": ""}, "`engine.tokenizer` is missing: labels are weighed by token ids"),
        ({"classify": ClassifyConfig()}, "`classify.labels` is missing: engine `http`"),
    ],
)
def test_what_is_missing_is_named(
    engine: EngineConfig, changes: dict[str, Any], words: str
) -> None:
    (mistake,) = http.check_options(engine.model_copy(update=changes))

    assert mistake.startswith(words)
