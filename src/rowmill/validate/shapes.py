"""What a row may hold (text, messages, token ids) -> Request, for either kind of engine.

Promises: exactly one of text, messages and ids; for an endpoint also the bytes that it is sent.
Knows nothing of: which column something came from, beyond its name in sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from rowmill.errors import InvalidRow
from rowmill.rows import Request, Sampling
from rowmill.validate.conversation import check_messages, check_tools
from rowmill.validate.lines import value_of, what_is, word
from rowmill.validate.media_parts import NO_MEDIA, Sees
from rowmill.validate.once import refuse_repeated_inside

_MAX_ID = 2**32 - 1
TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls")
encode = msgspec.json.encode


class Way(msgspec.Struct, frozen=True):
    """How this job asks: decided once."""

    is_wire: bool
    """The engine is sent JSON bodies, not token ids."""
    wraps_text: bool
    """Text of a prompt becomes one user message."""
    system: str
    keeps_tools: bool = False
    """The engine reads tool calls out of answers."""
    sees: Sees = NO_MEDIA
    """What of images and audio may be asked with."""
    text_field: str = "prompt"
    """Name under which an endpoint takes a text."""
    served: str = ""
    """The model that answers, where the job names none and it is known."""


class Asked(msgspec.Struct, frozen=True, gc=False):
    """What is known of a row before its prompt is looked at."""

    key: int
    id: bytes
    sampling: Sampling


def text_request(
    way: Way, asked: Asked, text: str, parts: Sequence[str] = (), tools: Any = None
) -> Request:
    """A prompt that is text: wrapped into a conversation where the job is chat, else raw.

    Args:
        parts: Template literals and data in turn where the text was made of them.
    """
    if way.wraps_text:
        messages = [{"role": "user", "content": text}]
        if way.system:
            messages.insert(0, {"role": "system", "content": way.system})
        wire = encode(messages) if way.is_wire else b""
        return _chat(way, asked, messages, tools, wire)
    return Request(
        key=asked.key,
        sampling=asked.sampling,
        id=asked.id,
        text=text,
        wire=encode(text) if way.is_wire else b"",
        wire_field=way.text_field if way.is_wire else "",
        data_spans=parts,
    )


def messages_request(way: Way, asked: Asked, raw: bytes, field: str, tools: Any) -> Request:
    """A conversation. Raises InvalidRow where it is none."""
    value = value_of(raw, field)
    refuse_repeated_inside(raw, field, value)
    found = check_messages(value, field, way.sees)
    if not way.is_wire or found.wire is None:
        request = _chat(way, asked, found.messages, tools, raw if way.is_wire else b"")
    else:
        request = _chat(way, asked, found.messages, tools, encode(found.wire))
    return msgspec.structs.replace(request, media=found.media) if found.media else request


def _chat(
    way: Way, asked: Asked, messages: Sequence[dict[str, Any]], tools: Any, wire: bytes
) -> Request:
    sampling = asked.sampling
    if tools and way.keeps_tools:
        sampling = msgspec.structs.replace(sampling, tools=encode(tools).decode())
    return Request(
        key=asked.key,
        sampling=sampling,
        id=asked.id,
        messages=messages,
        tools=tools,
        wire=wire,
        wire_field="messages" if way.is_wire else "",
    )


def ids_request(way: Way, asked: Asked, value: Any, field: str) -> Request:
    """Token ids as they are. Raises InvalidRow where one cannot be an id."""
    if not isinstance(value, list) or not value:
        _refuse(field, value, "a non-empty list of token ids")
    for i, number in enumerate(value):
        if not isinstance(number, int) or isinstance(number, bool):
            _refuse(f"{field}[{i}]", number, "a token id, as all of the list")
        if not 0 <= number <= _MAX_ID:
            reason = f"`{field}[{i}]` is {number}, expected a token id from 0 to {_MAX_ID}"
            raise InvalidRow(reason=reason)
    return Request(
        key=asked.key,
        sampling=asked.sampling,
        id=asked.id,
        ids=value,
        wire=encode(value) if way.is_wire else b"",
        wire_field="prompt" if way.is_wire else "",
    )


def prompt_request(way: Way, asked: Asked, raw: bytes, field: str, tools: Any) -> Request:
    """A `prompt`: text, or a list of token ids. Raises InvalidRow for all else."""
    value = value_of(raw, field)
    if isinstance(value, str):
        if not value:
            _refuse(field, value, "text")
        if tools is not None and not way.wraps_text:
            reason = f"`tools` beside a raw `{field}`, expected them beside `messages`"
            raise InvalidRow(reason=reason)
        return text_request(way, asked, value, tools=tools)
    if isinstance(value, list) and value and all(isinstance(entry, str) for entry in value):
        reason = f"`{field}` is a list of {len(value)} strings, expected one prompt a row; write a row for each"
        raise InvalidRow(reason=reason)
    if not isinstance(value, list) or not value:
        _refuse(field, value, "text, or a list of token ids")
    return ids_request(way, asked, value, field)


def _refuse(field: str, value: Any, expected: str) -> NoReturn:
    raise InvalidRow(reason=f"`{field}` is {what_is(value)}, expected {expected}")


def row_tools(row: Mapping[str, bytes], way: Way, prefix: str = "") -> Any:
    """The row's tool definitions, checked; None where there are none, or none may be called.

    Raises:
        InvalidRow: they are none, or an engine without an endpoint is to be held to one of them.
    """
    raw, field = row.get("tools", b"null"), f"{prefix}tools"
    if raw == b"null":
        return None
    value = value_of(raw, field)
    refuse_repeated_inside(raw, field, value)
    tools = check_tools(value, field)
    raw = row.get("tool_choice", b"null")
    chosen = value_of(raw, f"{prefix}tool_choice")
    refuse_repeated_inside(raw, f"{prefix}tool_choice", chosen)
    if way.is_wire or chosen in (None, "auto"):
        return tools
    if chosen == "none":
        return None
    reason = (
        f"`{prefix}tool_choice` is {word(chosen)}, expected `auto` or `none`: this engine holds no answer to a tool,"
        " an endpoint may"
    )
    raise InvalidRow(reason=reason)


def with_tools(columns: Mapping[str, bytes], way: Way) -> bytes:
    """For an endpoint: the fields beside the messages that carry tools, as a JSON object; else empty."""
    if not way.is_wire or columns.get("tools", b"null") == b"null":
        return b""
    given = [name for name in TOOL_FIELDS if columns.get(name, b"null") != b"null"]
    return (
        b"{" + b",".join([b'"%b":%b' % (name.encode(), columns[name]) for name in given]) + b"}"
    )
