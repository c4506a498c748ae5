"""A line of an OpenAI or vLLM batch file -> Request.

Promises: `url` and `body` decide; no model answers for another; every key of the body is used, passed on, or named
as unknown.
Bodies of the other urls that endpoints know (embeddings, scores, responses) go out whole, as they stand.
Knows nothing of: lines of other shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from rowmill.errors import InvalidRow
from rowmill.rows import Request
from rowmill.validate.asked import CHECKS, Samplings
from rowmill.validate.lines import Columns, shown, split_columns, value_of, what_is, word
from rowmill.validate.once import refuse_repeated_inside, repeated_columns_of
from rowmill.validate.shapes import Asked, Way, messages_request, prompt_request, row_tools

_FIELD_BY_URL = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}
_NEEDED_BY_URL: Mapping[str, tuple[str, ...]] = {
    "/v1/embeddings": ("input", "messages"),
    "/v1/responses": ("input",),
    "/score": ("text_1", "queries", "data_1"),
    "/v1/score": ("text_1", "queries", "data_1"),
    "/rerank": ("query",),
    "/v1/rerank": ("query",),
    "/v2/rerank": ("query",),
}
"""Urls whose bodies an endpoint is sent whole -> keys of which one must be there."""
_OUTER = ("method", "url", "body")
_READ = frozenset((*CHECKS, "model", "messages", "prompt", "tools", "stream"))
_PASSED = frozenset(("tools", "model"))
"""Of these, what an endpoint is told as well."""
_NO_MATTER = frozenset(("metadata", "service_tier", "store", "stream_options", "user"))


def is_batch_line(columns: Columns, prompts: Sequence[str]) -> bool:
    """True for rows with `url` and `body`, and `method` or `custom_id`; also for such a line with parts missing.

    A null counts as absent: a table has all of its columns in each row.

    Args:
        columns: The row's.
        prompts: Columns that make it a row with a prompt of its own.

    Raises:
        InvalidRow: It has such a prompt, and a body for a url that is known as well.
    """
    if "body" not in columns and "custom_id" not in columns:
        return False  # most rows, at once

    def has(name: str) -> bool:
        return columns.get(name, b"null") != b"null"

    own = list(filter(has, prompts))
    if not (has("body") and has("url")):
        return not own and has("custom_id") and any(map(has, _OUTER))
    if own and "body" not in own and _is_known(columns["url"]):
        reason = f"`{own[0]}` and `body` in one row, expected one of them"
        raise InvalidRow(reason=reason)
    return not own and (has("method") or has("custom_id"))


def _is_known(url: bytes) -> bool:
    path = value_of(url, "url")
    return isinstance(path, str) and (path in _FIELD_BY_URL or path in _NEEDED_BY_URL)


def batch_request(
    columns: Columns, asked: Asked, *, way: Way, samplings: Samplings, models: Sequence[str]
) -> Request:
    """The request of a batch line.

    Args:
        models: The name of the job's model, empty where it is not known, and others that mean it.

    Raises:
        InvalidRow: another url or method, another model, an unknown key, or a wrong value.
    """
    for name in _OUTER:
        if name not in columns:
            reason = (
                f"`{name}` is missing: a batch line has `custom_id`, `method`, `url` and `body`"
            )
            raise InvalidRow(reason=reason)
    url = _url(columns, takes_any=way.is_wire)
    body = _body(columns["body"])
    _check_model(body, models, way)
    if url in _NEEDED_BY_URL:
        raw = _whole_body(columns["body"], body, url=url, models=models)
        return Request(asked.key, asked.sampling, asked.id, wire=raw, wire_field=url)
    field = _FIELD_BY_URL[url]
    other = "prompt" if field == "messages" else "messages"
    if body.get(other, b"null") != b"null":
        reason = f"`body.{other}` in a line for {url}, expected `body.{field}` alone"
        raise InvalidRow(reason=reason)
    if field not in body:
        reason = f"`body.{field}` is missing"
        raise InvalidRow(reason=reason)
    own = {name: raw for name, raw in body.items() if name in CHECKS}
    if models[0]:
        body.pop("model", None)  # it means the job's
    sampling = samplings.asked(own, extra=_extra(body, way), prefix="body.")
    asked = msgspec.structs.replace(asked, sampling=sampling)
    tools = row_tools(body, way, "body.")
    if field == "messages":
        return messages_request(way, asked, body[field], "body.messages", tools)
    raw_way = msgspec.structs.replace(way, wraps_text=False)
    return prompt_request(raw_way, asked, body[field], "body.prompt", tools)


def _url(columns: Columns, *, takes_any: bool) -> str:
    """The line's url, one of those that are known."""
    method = value_of(columns["method"], "method")
    if method != "POST":
        reason = f"`method` is {word(method)}, expected `POST`"
        raise InvalidRow(reason=reason)
    url = value_of(columns["url"], "url")
    known = [*_FIELD_BY_URL, *(_NEEDED_BY_URL if takes_any else ())]
    if not isinstance(url, str) or url not in known:
        *others, last = (f"`{one}`" for one in known)
        reason = f"`url` is {word(url)}, expected {', '.join(others)} or {last}"
        if url in _NEEDED_BY_URL:
            reason += ": this engine generates text, an endpoint takes such lines (`--url`)"
        raise InvalidRow(reason=reason)
    return url


def _whole_body(raw: bytes, body: Columns, *, url: str, models: Sequence[str]) -> bytes:
    """A body that is sent as it stands; its endpoint knows what belongs in it.

    Only another name of the job's model is left out: the endpoint knows it by the first of `models` alone.
    """
    needed = _NEEDED_BY_URL[url]
    if not any(body.get(name, b"null") != b"null" for name in needed):
        *others, last = (f"`body.{name}`" for name in needed)
        reason = f"{', '.join(others)} or {last} is missing" if others else f"{last} is missing"
        raise InvalidRow(reason=reason)
    for name, value in body.items():
        refuse_repeated_inside(value, f"body.{shown(name)}")
    named = value_of(body.get("model", b"null"), "body.model")
    if models[0] and named not in (None, models[0]):
        return msgspec.json.encode({n: Raw(v) for n, v in body.items() if n != "model"})
    return raw


def table_body(raw: bytes) -> bytes:
    """The body of a row of a table: there, a column of strings may hold it as JSON."""
    text = value_of(raw, "body") if raw[:1] == b'"' else None
    return text.encode() if isinstance(text, str) and text[:1] == "{" else raw


def _body(raw: bytes) -> Columns:
    if raw[:1] != b"{":
        reason = f"`body` is {what_is(value_of(raw, 'body'))}, expected an object"
        raise InvalidRow(reason=reason)
    body = split_columns(raw)
    if len(repeated := repeated_columns_of(raw, body)):
        reason = f"`body.{shown(repeated[0])}` is given twice, expected each key once"
        raise InvalidRow(reason=reason)
    if body.get("stream", b"false") not in (b"false", b"null"):
        reason = "`body.stream` is true, expected false or none: a batch is answered whole"
        raise InvalidRow(reason=reason)
    return body


def _check_model(body: Columns, models: Sequence[str], way: Way) -> None:
    """Where no name is known, an endpoint is told the line's own; an engine here has no other model to answer with."""
    asked = value_of(body.get("model", b"null"), "body.model")
    names = list(filter(None, models)) if models[0] or not way.is_wire else []
    if asked is None or asked in names or (not names and isinstance(asked, str)):
        return
    known = " or ".join(f"`{name}`" for name in names) or "a name"
    whose = "the model that is served" if way.served else "the job's `engine.model`"
    reason = f"`body.model` is {word(asked)}, expected {whose}, {known}, or none"
    raise InvalidRow(reason=reason)


def _extra(body: Columns, way: Way) -> bytes:
    """Keys that are not ours, for an endpoint to judge; an engine that takes ids knows none of them."""
    others = {
        name: raw
        for name, raw in body.items()
        if raw != b"null" and (name not in _READ or (name in _PASSED and way.is_wire))
    }
    if not way.is_wire:
        _refuse_others(others)
        return b""
    if not others:
        return b""
    values: dict[str, Any] = {
        name: value_of(raw, f"body.{name}") for name, raw in others.items()
    }
    for name, value in values.items():
        refuse_repeated_inside(others[name], f"body.{shown(name)}", value)
    try:
        return msgspec.json.encode(values)
    except UnicodeEncodeError as error:
        reason = (
            "`body` holds half a surrogate pair (\\ud800 to \\udfff), expected whole characters"
        )
        raise InvalidRow(reason=reason) from error


def _refuse_others(others: Columns) -> None:
    for name, raw in others.items():
        if name in _NO_MATTER or (name == "tool_choice" and raw in (b'"auto"', b'"none"')):
            continue
        known = ", ".join(f"`{key}`" for key in sorted(_READ))
        reason = f"`body.{shown(name)}` is unknown to this engine, known: {known}"
        raise InvalidRow(reason=reason)
