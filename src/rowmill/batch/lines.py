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
from rowmill.errors import RowError
from rowmill.rows import NULL, RESULT_PREFIX, Outcome
from rowmill.validate.ids import NO_ID, IdColumns, id_names, is_sound
from rowmill.validate.lines import split_columns
from rowmill.validate.salvage import Salvage

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
    """What of an input line says of which kind its answer is."""

    url: Any = ""
    messages: msgspec.Raw = NULL


_read_head = msgspec.json.Decoder(_Head).decode
encode = msgspec.json.Encoder().encode


class LineIds:
    """Finds what lines are known by, as the ids of rows are found."""

    def __init__(self, id_column: str = "") -> None:
        """Ids of a job with this `validate.id_column`."""
        self._columns = IdColumns(id_names(id_column))
        self._salvage = Salvage(RESULT_PREFIX, self._columns)

    def of(self, source: bytes) -> msgspec.Raw:
        """JSON of the id that the line of a row gets in a batch file, as it stands there; null for none."""
        try:
            columns = self._columns.columns_once(source)
        except RowError:
            columns = self._salvage.id_alone(source)
        found = (columns.get(name, b"") for name in self._columns.names)
        raw = next((raw for raw in found if raw not in NO_ID), b"null")
        return msgspec.Raw(raw) if is_sound(raw) else NULL


def batch_line(
    source: bytes, custom_id: msgspec.Raw, outcome: Outcome, served: Served, token: str
) -> BatchLine:
    """The line of a row.

    Args:
        source: The row's line in the input.
        custom_id: What it is known by.
        outcome: What became of it.
        served: What bodies share.
        token: The run's: ids are made of it and the row's key, so that the same run gives the same file.
    """
    name = xxhash.xxh3_64_hexdigest(f"{token}:{outcome.key}".encode())
    is_vllm = served.dialect == "vllm"
    id = f"vllm-{name}" if is_vllm else f"batch_req_{name}"
    request_id = f"vllm-batch-{name}" if is_vllm else f"req_{name}"
    if outcome.status == "ok":
        body = _body(outcome, source, served, name)
        return BatchLine(id, custom_id, Response(200, request_id, body))
    if is_vllm:
        told, status = _error_of_vllm(outcome)
        return BatchLine(id, custom_id, Response(status, request_id), told)
    response = _refusal(outcome, request_id)
    own = {"code": outcome.error_kind, "message": outcome.error}
    return BatchLine(id, custom_id, response, NULL if response else _raw(own))


def _body(outcome: Outcome, source: bytes, served: Served, name: str) -> msgspec.Raw:
    if bytes(outcome.body) != b"null":
        return outcome.body
    make = chat_body if _is_chat(source) else completion_body
    return _raw(make(outcome, served, name))


def _is_chat(source: bytes) -> bool:
    """Whether a row that was answered was asked for a message."""
    try:
        head = _read_head(source)
        return "chat" in str(head.url) or bytes(head.messages) != b"null"
    except msgspec.MsgspecError:  # a column that is not used may hold half a surrogate pair
        columns = split_columns(source)
        has_messages = columns.get("messages", b"null") != b"null"
        return has_messages or b"chat" in columns.get("url", b"")


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
