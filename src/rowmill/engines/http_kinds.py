"""Bodies that are no choices (embeddings, scores, rankings, responses) -> an answer that is the body itself.

Promises: an answer that is not whole (a vector missing or not finite, a score too few) is none; parts come in the
order of what was asked.
Knows nothing of: statuses, connections.
Memory: the body.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from rowmill import errors
from rowmill.engines.vectors import BadVector


class Whole(msgspec.Struct):
    """What a body without choices says."""

    text: str | None = None
    """Of a response: its text. Null where numbers are the answer."""
    finish_reason: str = ""
    is_sorted: bool = True
    """Whether `body` is as it came; else parts of it were put into order."""


def read_whole(path: str, found: dict[str, Any], asked: bytes) -> Whole:
    """See that a body is a whole answer to what was asked.

    Raises:
        RowError: It is one that nobody can use.
        Transient: It is not whole.
    """
    read = _READERS[path.rpartition("/")[2]]
    try:
        return read(found, msgspec.json.decode(asked))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"HTTP 200 with a body of an unknown shape for `{path}`"
        raise errors.Disconnected(reason=reason) from error


def read_vectors(found: dict[str, Any], asked: bytes) -> list[bytes]:
    """The vectors of a body, in order, as float32; what is no number in one is NaN in it.

    Raises:
        Disconnected: One is missing, or is neither numbers nor base64 of them.
    """
    try:
        _in_order(found, _of_length(found, "data", _wanted(msgspec.json.decode(asked))))
        return [_packed(entry["embedding"]) for entry in found["data"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = "HTTP 200 with a body whose `data` is no list of vectors"
        raise errors.Disconnected(reason=reason) from error


def read_scores(found: dict[str, Any], asked: bytes) -> list[bytes]:
    """The score of each document of a body, in the order of the documents, as float32.

    Raises:
        Disconnected: One is missing, or is no number.
    """
    documents = msgspec.json.decode(asked)
    name, key = ("data", "score") if "text_2" in documents else ("results", "relevance_score")
    wanted = len(documents.get("text_2") or documents["documents"])
    try:
        parts = _of_length(found, name, wanted)
        # A ranking comes with the best first.
        _in_order({}, parts)
        scores = {int(part.get("index", at)): part[key] for at, part in enumerate(parts)}
        # What is not finite was null in its JSON, or is by now: no score to be trusted, and no reason to ask again.
        found_scores = (scores[at] for at in range(wanted))
        return [_packed([math.nan if one is None else float(one)]) for one in found_scores]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"HTTP 200 with a body whose `{name}` is no list of scores"
        raise errors.Disconnected(reason=reason) from error


def _packed(vector: str | list[float | None] | None) -> bytes:
    if vector is None:
        return b""
    if isinstance(vector, str):
        return np.frombuffer(base64.b64decode(vector, validate=True), "<f4").tobytes()
    with np.errstate(over="ignore"):
        return np.array([math.nan if x is None else x for x in vector], "<f4").tobytes()


def _wanted(asked: dict[str, Any]) -> int:
    inputs = asked.get("input")
    is_list = isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], str | list)
    return len(inputs) if is_list and inputs is not None else 1


def _embeddings(found: dict[str, Any], asked: dict[str, Any]) -> Whole:
    wanted = _wanted(asked)
    vectors = _of_length(found, "data", wanted)
    for i, one in enumerate(vectors):
        vector = one["embedding"]
        if isinstance(vector, str) and vector:
            continue  # base64: as asked
        if not vector or not all(type(x) in (int, float) and math.isfinite(x) for x in vector):
            reason = f"vector {i} of {wanted} is empty or holds what is no finite number"
            raise BadVector(reason=reason)
    return _in_order(found, vectors)


def _score(found: dict[str, Any], asked: dict[str, Any]) -> Whole:
    sides = [
        _count(asked, names)
        for names in (("text_1", "queries", "data_1"), ("text_2", "documents", "data_2"))
    ]
    scores = _of_length(found, "data", max(sides))
    for one in scores:
        float(one["score"])
    return _in_order(found, scores)


def _rerank(found: dict[str, Any], asked: dict[str, Any]) -> Whole:
    documents = asked.get("documents")
    wanted = len(documents) if isinstance(documents, list) else 1
    top = asked.get("top_n") or 0
    for one in _of_length(found, "results", min(wanted, top) if top > 0 else wanted):
        float(one["relevance_score"])
    return Whole()


def _responses(found: dict[str, Any], asked: dict[str, Any]) -> Whole:
    del asked
    if found.get("status") in ("failed", "cancelled", "in_progress", "queued"):
        reason = f"HTTP 200 with a response that is `{found['status']}`"
        raise errors.Disconnected(reason=reason)
    texts = [
        part["text"]
        for item in found["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    ]
    calls = any(item["type"] == "function_call" for item in found["output"])
    is_cut = found.get("status") == "incomplete"
    reason = "length" if is_cut else "tool_calls" if calls else "stop"
    return Whole(text="".join(texts), finish_reason=reason)


_READERS: Mapping[str, Callable[[dict[str, Any], dict[str, Any]], Whole]] = {
    "embeddings": _embeddings,
    "score": _score,
    "rerank": _rerank,
    "responses": _responses,
}


def _count(asked: dict[str, Any], names: tuple[str, ...]) -> int:
    value = next((asked[name] for name in names if asked.get(name) is not None), None)
    return len(value) if isinstance(value, list) else 1


def _of_length(found: dict[str, Any], name: str, wanted: int) -> list[dict[str, Any]]:
    parts = found[name]
    if len(parts) != wanted:
        reason = f"HTTP 200 with {len(parts)} of {wanted} entries in `{name}`"
        raise errors.Disconnected(reason=reason)
    return list(parts)


def _in_order(found: dict[str, Any], parts: list[dict[str, Any]]) -> Whole:
    """See that each part is there once; put them in the order of what was asked."""
    places = [part.get("index", i) for i, part in enumerate(parts)]
    if sorted(places) != list(range(len(parts))):
        reason = "HTTP 200 with parts whose `index` is not 0, 1, 2, ... each once"
        raise errors.Disconnected(reason=reason)
    if places == list(range(len(parts))):
        return Whole()
    found["data"] = sorted(parts, key=lambda part: int(part["index"]))
    return Whole(is_sorted=False)
