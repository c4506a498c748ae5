"""Token ids -> vectors, by llama.cpp in this process.

Promises: many texts are one call, as many as the cache has room for, so that a step is full; a text that llama.cpp
fails on fails alone.
Knows nothing of: cutting and judging vectors, see vectors.py.
Memory: the texts of two calls. Threads: one a call, two calls at once, so that the server never waits for us.
Source: xllamacpp 2026.10.11549, tried: `input` may be lists of ids, more of them than there are slots; with
`embd_normalize` -1 vectors come as they are pooled.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import msgspec
import numpy as np

from rowmill import errors
from rowmill.engines.prompt import check_prompt
from rowmill.engines.protocol import Feed
from rowmill.engines.texts import failed_text
from rowmill.engines.vectors import answered_with, parts_of
from rowmill.rows import Ids, Limits, Outcome, Piece, Prompts

_CALLS = 2
_MOST_WORDS = 200


class _Row(msgspec.Struct):
    """A row whose texts are being embedded."""

    key: int
    tokens: int
    began: float
    pieces: Sequence[Piece]
    vectors: list[bytes]
    missing: int
    error: errors.RowError | None = None


class _Text(msgspec.Struct):
    """What becomes one vector."""

    row: _Row
    at: int
    ids: Ids


class LlamaVectors:
    """A loaded model that embeds."""

    def __init__(self, server: Any, limits: Limits, *, vocabulary: int) -> None:
        self.limits = limits
        self._server = server
        self._vocabulary = vocabulary
        self._waiting: deque[_Text] = deque()
        self._room = limits.kv_tokens // _CALLS

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        running: dict[Future[list[bytes]], list[_Text]] = {}
        has_ended = False
        with ThreadPoolExecutor(_CALLS, thread_name_prefix="call") as pool:
            while True:
                while not has_ended and len(self._waiting) < self.limits.seats:
                    prompts = feed.take(wait=not (running or self._waiting))
                    has_ended = prompts is None
                    if not prompts:
                        break
                    yield self._take(prompts)
                while self._waiting and len(running) < _CALLS:
                    texts = self._next()
                    running[pool.submit(self._vectors, [t.ids for t in texts])] = texts
                if not running:
                    if has_ended:
                        return
                    continue
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    yield list(self._outcomes(done, running.pop(done)))

    def close(self) -> None:
        """Free the model."""
        self._server = None

    def _take(self, prompts: Prompts) -> list[Outcome]:
        refused, now = [], time.monotonic()
        for key, ids in zip(prompts.keys, prompts.row_ids(), strict=True):
            pieces = prompts.pieces.get(key, ())
            parts = parts_of(ids, pieces, ())
            try:
                for part in parts:
                    check_prompt(
                        part,
                        limit=self.limits.max_model_tokens,
                        vocabulary=self._vocabulary,
                        answers=False,
                    )
            except errors.RowError as error:
                refused.append(failed_text(key, len(ids), error))
                continue
            row = _Row(key, len(ids), now, pieces, [b""] * len(parts), len(parts))
            self._waiting += [_Text(row, at, part) for at, part in enumerate(parts)]
        return refused

    def _next(self) -> list[_Text]:
        """Texts of one call: one at least, no more than a cache of half the size holds."""
        texts, tokens = [self._waiting.popleft()], 0
        tokens = len(texts[0].ids)
        while self._waiting and len(texts) < self.limits.seats:
            tokens += len(self._waiting[0].ids)
            if tokens > self._room:
                break
            texts.append(self._waiting.popleft())
        return texts

    def _vectors(self, texts: Sequence[Ids]) -> list[bytes]:
        """One call of llama.cpp.

        Raises:
            Refused: It does not take a text.
            Disconnected: It failed.
        """
        asked = {"input": [ids.tolist() for ids in texts], "embd_normalize": -1}
        try:
            found = self._server.handle_embeddings(asked)
        except (ValueError, RuntimeError) as error:
            reason = f"llama.cpp failed: {type(error).__name__}"
            raise errors.Disconnected(reason=reason) from error
        failure = found.get("error")
        if failure:
            words = " ".join(str(failure.get("message")).split())[:_MOST_WORDS]
            raise errors.Refused(reason=f"llama.cpp: {words}")
        ranked = sorted(found["data"], key=lambda one: int(one["index"]))
        return [np.array(one["embedding"], "<f4").tobytes() for one in ranked]

    def _outcomes(self, done: Future[list[bytes]], texts: list[_Text]) -> Iterator[Outcome]:
        error = done.exception()
        if error is None:
            for text, vector in zip(texts, done.result(), strict=True):
                yield from self._seen(text, vector, None)
        elif isinstance(error, errors.RowError | errors.Transient):
            for text in texts:
                yield from self._alone(text)
        else:
            raise error

    def _alone(self, text: _Text) -> Iterator[Outcome]:
        """A text of a call that failed."""
        try:
            (vector,) = self._vectors([text.ids])
        except errors.RowError as error:
            yield from self._seen(text, b"", error)
        except errors.Disconnected as error:
            yield from self._seen(text, b"", errors.GaveUp(reason=f"{error}, alone too"))
        else:
            yield from self._seen(text, vector, None)

    def _seen(
        self, text: _Text, vector: bytes, error: errors.RowError | None
    ) -> Iterator[Outcome]:
        row = text.row
        row.vectors[text.at] = vector
        row.error = row.error or error
        row.missing -= 1
        if row.missing:
            return
        fields = {} if row.error else answered_with(row.vectors, row.pieces)
        yield Outcome(
            key=row.key,
            status="error" if row.error else "ok",
            prompt_tokens=row.tokens,
            attempts=1,
            seconds=round(time.monotonic() - row.began, 6),
            error_kind=row.error.kind if row.error else None,
            error=str(row.error) if row.error else None,
            **fields,
        )
