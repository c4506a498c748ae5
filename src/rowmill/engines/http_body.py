"""A row's sampling -> the fields of a request body, beside what the row itself brought.

Promises: `messages` and `prompt` go out byte for byte as they stood in the row (files in the place of images and audio were
filled in before), whatever `extra` says; so do whole
bodies, but that the model is named where they name none; a limit that the endpoint is to choose is not sent.
Knows nothing of: connections, answers.
Memory: one encoded tail for each distinct sampling and limit.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill.engines import http_labels
from rowmill.rows import Sampling

_PATHS = {
    "messages": "/v1/chat/completions",
    "prompt": "/v1/completions",
    "input": "/v1/embeddings",
}
_PAIRS = {"rerank": "/v1/rerank", "score": "/score"}
"""Where an endpoint scores pairs: as Jina, Cohere and vLLM have it, or as vLLM alone."""
_KEPT = ("messages", "prompt", "input", "stream", "stream_options")
_MOST_TAILS = 1024
_PLAIN = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)


class Bodies:
    """Request bodies for one model name."""

    def __init__(self, model: str, *, streams: bool = False, pairs: str = "rerank") -> None:
        self._model, self._streams, self._pairs = model, streams, pairs
        self._tails: dict[tuple[Sampling, int, str], bytes] = {}

    def build(
        self, field: str, wire: bytes, sampling: Sampling, max_tokens: int
    ) -> tuple[str, bytes]:
        """Path of the API, and body, of what a row, or several, have on the wire."""
        if field.startswith("/"):
            return field, self._named(wire)
        if field == "documents":
            return self._of_pairs(wire, sampling)
        if field == http_labels.FIELD:
            return http_labels.PATH, http_labels.body_of(wire, self._model)
        key = (sampling, max_tokens, field)
        tail = self._tails.get(key)
        if tail is None:
            if len(self._tails) >= _MOST_TAILS:
                self._tails.clear()
            tail = self._tails[key] = self._tail(*key)
        return _PATHS[field], b'{"%b":%b%b' % (field.encode("ascii"), wire, tail)

    def _of_pairs(self, wire: bytes, sampling: Sampling) -> tuple[str, bytes]:
        """A query and documents; the places of a ranking are ours to count, so all scores are asked for."""
        asked = msgspec.json.decode(wire)
        if self._pairs == "score":
            asked = {"text_1": asked["query"], "text_2": asked["documents"]}
        extra = msgspec.json.decode(sampling.extra) if sampling.extra else {}
        fields = {"model": self._model} if self._model else {}
        return _PAIRS[self._pairs], msgspec.json.encode({**extra, **fields, **asked})

    def _named(self, body: bytes) -> bytes:
        """A whole body, with the model's name in it."""
        if not self._model or (b'"model"' in body and msgspec.json.decode(body).get("model")):
            return body
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        fields["model"] = msgspec.Raw(msgspec.json.encode(self._model))
        return msgspec.json.encode(fields)

    def _tail(self, sampling: Sampling, max_tokens: int, field: str) -> bytes:
        """All of the body behind the row's own part, closing brace included."""
        fields: dict[str, Any] = {"model": self._model} if self._model else {}
        if field != "input":
            fields |= sampling_fields(sampling, is_chat=field == "messages")
        if max_tokens:
            fields["max_tokens"] = max_tokens
        if self._streams and field != "input":
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        extra = msgspec.json.decode(sampling.extra) if sampling.extra else {}
        fields |= {name: value for name, value in extra.items() if name not in _KEPT}
        encoded = msgspec.json.encode(fields)
        return b"," + encoded[1:] if fields else b"}"


def sampling_fields(sampling: Sampling, *, is_chat: bool) -> dict[str, Any]:
    """Fields of a completion or chat request, under the names that OpenAI or, beyond those, vLLM gives them."""
    fields: dict[str, Any] = {
        name: value for name in _PLAIN if (value := getattr(sampling, name)) is not None
    }
    if sampling.n > 1:
        fields["n"] = sampling.n
    if sampling.stop:
        fields["stop"] = sampling.stop
    if sampling.ignore_eos:
        fields["ignore_eos"] = True
    if sampling.return_token_ids:
        fields["return_token_ids"] = True
    if sampling.logprobs is not None:
        asked = sampling.logprobs
        fields |= {"logprobs": True, "top_logprobs": asked} if is_chat else {"logprobs": asked}
    return fields | _constraint(sampling)


def _constraint(sampling: Sampling) -> dict[str, Any]:
    if sampling.schema:
        named = {
            "name": "answer",
            "strict": True,
            "schema": msgspec.Raw(sampling.schema.encode()),
        }
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if sampling.choices:
        return {"structured_outputs": {"choice": sampling.choices}}
    if sampling.regex:
        return {"structured_outputs": {"regex": sampling.regex}}
    return {}
