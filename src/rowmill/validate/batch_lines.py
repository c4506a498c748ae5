"""A line of an OpenAI or vLLM batch file -> Request.

Promises: `url` and `body` decide; every key of the body is used, passed on, or named as unknown.
Knows nothing of: lines of other shapes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill.errors import InvalidRow
from rowmill.rows import Request
from rowmill.validate.asked import CHECKS, Samplings
from rowmill.validate.lines import Columns, shown, split_columns, value_of, what_is, word
from rowmill.validate.once import repeated_columns_of
from rowmill.validate.shapes import Asked, Way, messages_request, prompt_request, row_tools

_FIELD_BY_URL = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}
_READ = frozenset((*CHECKS, "model", "messages", "prompt", "tools", "stream"))
_NO_MATTER = frozenset(("metadata", "service_tier", "store", "stream_options", "user"))


def is_batch_line(columns: Columns) -> bool:
    """True for rows with `url` and `body`, and `method` or `custom_id`."""
    return (
        "body" in columns
        and "url" in columns
        and bool({"method", "custom_id"} & columns.keys())
    )


def batch_request(
    columns: Columns, asked: Asked, *, way: Way, samplings: Samplings, model: str
) -> Request:
    """The request of a batch line.

    Raises:
        InvalidRow: another url or method, another model, an unknown key, or a wrong value.
    """
    field = _field(columns)
    body = _body(columns["body"])
    _check_model(body, model)
    if body.get("stream", b"false") not in (b"false", b"null"):
        reason = "`body.stream` is true, expected false or none: a batch is answered whole"
        raise InvalidRow(reason=reason)
    other = "prompt" if field == "messages" else "messages"
    if body.get(other, b"null") != b"null":
        url = "/v1/chat/completions" if field == "messages" else "/v1/completions"
        reason = f"`body.{other}` in a line for {url}, expected `body.{field}` alone"
        raise InvalidRow(reason=reason)
    if field not in body:
        reason = f"`body.{field}` is missing"
        raise InvalidRow(reason=reason)
    own = {name: raw for name, raw in body.items() if name in CHECKS}
    sampling = samplings.asked(own, extra=_extra(body, way), prefix="body.")
    asked = msgspec.structs.replace(asked, sampling=sampling)
    tools = row_tools(body, "body.tools")
    if field == "messages":
        return messages_request(way, asked, body[field], "body.messages", tools)
    raw_way = msgspec.structs.replace(way, wraps_text=False)
    return prompt_request(raw_way, asked, body[field], "body.prompt", tools)


def _field(columns: Columns) -> str:
    """`messages` or `prompt`, by the line's url."""
    method = value_of(columns.get("method", b'"POST"'), "method")
    if method != "POST":
        reason = f"`method` is {word(method)}, expected `POST`"
        raise InvalidRow(reason=reason)
    url = value_of(columns["url"], "url")
    field = _FIELD_BY_URL.get(url) if isinstance(url, str) else None
    if field is None:
        allowed = " or ".join(f"`{known}`" for known in _FIELD_BY_URL)
        reason = f"`url` is {word(url)}, expected {allowed}"
        raise InvalidRow(reason=reason)
    return field


def _body(raw: bytes) -> Columns:
    if raw[:1] != b"{":
        reason = f"`body` is {what_is(value_of(raw, 'body'))}, expected an object"
        raise InvalidRow(reason=reason)
    body = split_columns(raw)
    if len(repeated := repeated_columns_of(raw, body)):
        reason = f"`body.{shown(repeated[0])}` is given twice, expected each key once"
        raise InvalidRow(reason=reason)
    return body


def _check_model(body: Columns, model: str) -> None:
    asked = value_of(body.get("model", b"null"), "body.model")
    if asked is None or not model or asked == model:
        return
    reason = (
        f"`body.model` is {word(asked)}, expected the job's `engine.model`, `{model}`, or none"
    )
    raise InvalidRow(reason=reason)


def _extra(body: Columns, way: Way) -> bytes:
    """Keys that are not ours, for an endpoint to judge; an engine that takes ids knows none of them."""
    others = {
        name: raw
        for name, raw in body.items()
        if raw != b"null" and (name not in _READ or (name == "tools" and way.is_wire))
    }
    if not way.is_wire:
        _refuse_others(others)
        return b""
    if not others:
        return b""
    values: dict[str, Any] = {
        name: value_of(raw, f"body.{name}") for name, raw in others.items()
    }
    try:
        return msgspec.json.encode(values)
    except UnicodeEncodeError as error:
        reason = (
            "`body` holds half a surrogate pair (\\ud800 to \\udfff), expected whole characters"
        )
        raise InvalidRow(reason=reason) from error


def _refuse_others(others: Columns) -> None:
    for name, raw in others.items():
        if name in _NO_MATTER or (name == "tool_choice" and raw == b'"auto"'):
            continue
        known = ", ".join(f"`{key}`" for key in sorted(_READ))
        reason = f"`body.{shown(name)}` is unknown to this engine, known: {known}"
        raise InvalidRow(reason=reason)
