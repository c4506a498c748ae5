"""Row + outcome -> a line of a batch file.

Promises: answered lines have `error` null; of others either `error` is set or the status is 400 and above; all have
`id`, `custom_id`, `response` and `error`, and nothing else.
Knows nothing of: files.
Source: lines written by `vllm run-batch` 0.32.0; OpenAI's Batch API reference (output and error files), 2025.
"""

from __future__ import annotations

from typing import Any

import msgspec
import xxhash

from rowmill.batch.bodies import Served, chat_body, completion_body
from rowmill.rows import NULL, Outcome
from rowmill.write.results import salvaged_id

_STATUS_BY_KIND = {
    "transient": 503,
    "killed_engine": 500,
    "short_answer": 502,
    "bad_vector": 502,
}
_BAD_REQUEST = 400


class Response(msgspec.Struct, frozen=True):
    """What an endpoint answered, or would have."""

    status_code: int
    request_id: str
    body: msgspec.Raw = NULL


class BatchLine(msgspec.Struct, frozen=True):
    """One line of a batch file."""

    id: str
    custom_id: msgspec.Raw
    """JSON of the row's own id, of whatever type it is; null where it has none that can be read."""
    response: Response | None
    error: msgspec.Raw = NULL

    @property
    def is_answered(self) -> bool:
        """Whether it holds an answer."""
        good = self.response is not None and self.response.status_code == 200
        return good and bytes(self.error) == b"null"


class _Head(msgspec.Struct):
    """What of an input line goes into its output line."""

    custom_id: msgspec.Raw = NULL
    id: msgspec.Raw = NULL
    url: Any = ""
    messages: msgspec.Raw = NULL

    @property
    def own_id(self) -> msgspec.Raw:
        """What the line is known by."""
        return self.custom_id if bytes(self.custom_id) != b"null" else self.id


_read_head = msgspec.json.Decoder(_Head).decode
encode = msgspec.json.Encoder().encode


def batch_line(source: bytes, outcome: Outcome, served: Served, token: str) -> BatchLine:
    """The line of a row.

    Args:
        source: The row's line in the input.
        outcome: What became of it.
        served: What bodies share.
        token: The run's: ids are made of it and the row's key, so that the same run gives the same file.
    """
    head = _head(source)
    custom_id = head.own_id
    name = xxhash.xxh3_64_hexdigest(f"{token}:{outcome.key}".encode())
    is_vllm = served.dialect == "vllm"
    id = f"vllm-{name}" if is_vllm else f"batch_req_{name}"
    request_id = f"vllm-batch-{name}" if is_vllm else f"req_{name}"
    if outcome.status == "ok":
        body = _body(outcome, head, served, name)
        return BatchLine(id, custom_id, Response(200, request_id, body))
    if is_vllm:
        told, status = _error_of_vllm(outcome)
        return BatchLine(id, custom_id, Response(status, request_id), told)
    response = _refusal(outcome, request_id)
    own = {"code": outcome.error_kind, "message": outcome.error}
    return BatchLine(id, custom_id, response, NULL if response else _raw(own))


def id_of(source: bytes) -> msgspec.Raw:
    """JSON of the id that the line of a row gets in a batch file."""
    return _head(source).own_id


def _head(source: bytes) -> _Head:
    try:
        return _read_head(source)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        found = salvaged_id(source).rstrip(b",")
        id = msgspec.json.decode(b"{%b}" % found, type=dict[str, msgspec.Raw])
        return _Head(custom_id=next(iter(id.values()), NULL))


def _body(outcome: Outcome, head: _Head, served: Served, name: str) -> msgspec.Raw:
    if bytes(outcome.body) != b"null":
        return outcome.body
    is_chat = "chat" in str(head.url) or bytes(head.messages) != b"null"
    make = chat_body if is_chat else completion_body
    return _raw(make(outcome, served, name))


def _error_of_vllm(outcome: Outcome) -> tuple[msgspec.Raw, int]:
    if bytes(outcome.body) != b"null":
        return outcome.body, _status(outcome)
    status = _status(outcome)
    told = {"message": outcome.error, "type": outcome.error_kind, "param": None, "code": status}
    return _raw({"error": told}), status


def _refusal(outcome: Outcome, request_id: str) -> Response | None:
    """What the endpoint said, where it said something."""
    if bytes(outcome.body) == b"null":
        return None
    return Response(_status(outcome), request_id, outcome.body)


def _status(outcome: Outcome) -> int:
    known = _STATUS_BY_KIND.get(outcome.error_kind or "", _BAD_REQUEST)
    body = msgspec.json.decode(outcome.body)
    error = body.get("error") if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if type(code) is int and 400 <= code < 600 else known


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(encode(value))
