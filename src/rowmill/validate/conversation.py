"""A `messages` column -> a conversation that templates understand.

Promises: contents are strings (text parts joined by one newline), tool arguments are objects; of a conversation with images
or audio, contents are lists of parts;
nothing is dropped, merged or put in another order.
Knows nothing of: templates; which role may follow which is theirs to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from rowmill.errors import InvalidRow
from rowmill.media_item import Media
from rowmill.validate.lines import what_is, word
from rowmill.validate.media_parts import Sees, Shown, shown_part

Message = dict[str, Any]

_ROLES = frozenset(("system", "user", "assistant", "tool", "developer"))
_ROLE_NAMES = ", ".join(
    f"`{role}`" for role in ("system", "user", "assistant", "tool", "developer")
)


class Conversation(msgspec.Struct, frozen=True):
    """Messages, checked and normal."""

    messages: list[Message]
    media: list[Media] = []
    wire: list[Message] | None = None
    """As an endpoint is sent them, where that is not how they stood in the row."""


def check_messages(value: Any, field: str, sees: Sees) -> Conversation:
    """The conversation, checked and normal.

    Raises:
        InvalidRow: names the message by its index, what was found and what was expected.
        BadMedia: an image or audio comes from where nothing may be read.
    """
    if not isinstance(value, list) or not value:
        _refuse(field, what_is(value), "a non-empty list of messages")
    shown: dict[tuple[int, int], Shown] = {}
    messages = [
        _message(message, f"{field}[{i}]", _Seen(sees, shown, i))
        for i, message in enumerate(value)
    ]
    if not shown:
        return Conversation(messages)
    media = [one.media for one in shown.values() if one.media is not None]
    parted = [
        _in_parts(m, v, i, shown) for i, (m, v) in enumerate(zip(messages, value, strict=True))
    ]
    return Conversation(parted, media, _wire(value, shown) if media else None)


class _Seen(msgspec.Struct):
    """What of a message is image or audio, by message and part."""

    sees: Sees
    shown: dict[tuple[int, int], Shown]
    at: int


def _in_parts(
    normal: Message, message: Message, at: int, shown: dict[tuple[int, int], Shown]
) -> Message:
    """The message with a list of parts: templates for images walk over them."""
    content = message.get("content")
    if not isinstance(content, list):
        return {**normal, "content": [{"type": "text", "text": normal["content"]}]}
    parts = [
        shown[at, i].part if (at, i) in shown else {"type": "text", "text": part["text"]}
        for i, part in enumerate(content)
    ]
    return {**normal, "content": parts}


def _wire(value: list[Message], shown: dict[tuple[int, int], Shown]) -> list[Message]:
    places = {at for at, _ in shown}
    return [
        {
            **message,
            "content": [
                shown[at, i].wire if (at, i) in shown else part
                for i, part in enumerate(message["content"])
            ],
        }
        if at in places
        else message
        for at, message in enumerate(value)
    ]


def check_tools(value: Any, field: str) -> list[dict[str, Any]] | None:
    """Tool definitions; None where there are none.

    Raises:
        InvalidRow: names the tool by its index.
    """
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        _refuse(field, what_is(value), "a non-empty list of tools")
    for i, tool in enumerate(value):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            _refuse(f"{field}[{i}]", what_is(tool), "an object with `function`")
        if not isinstance(function.get("name"), str):
            where = f"{field}[{i}].function.name"
            _refuse(where, what_is(function.get("name")), "a string")
    return value


def _refuse(where: str, found: str, expected: str) -> NoReturn:
    raise InvalidRow(reason=f"`{where}` is {found}, expected {expected}")


def _message(message: Any, where: str, seen: _Seen) -> Message:
    if not isinstance(message, dict):
        _refuse(where, what_is(message), "an object with `role` and `content`")
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        found = word(role) if "role" in message else "absent"
        _refuse(f"{where}.role", found, f"one of {_ROLE_NAMES}")
    calls = message.get("tool_calls")
    content = message.get("content")
    if isinstance(content, str) and calls is None:
        return message
    normal = dict(message)
    if calls is None:
        normal.pop("tool_calls", None)
    else:
        normal["tool_calls"] = _tool_calls(calls, role, where)
    normal["content"] = _content(content, f"{where}.content", seen, may_lack=bool(calls))
    return normal


def _content(content: Any, where: str, seen: _Seen, *, may_lack: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and may_lack:
        return ""
    if not isinstance(content, list) or not content:
        _refuse(where, what_is(content), "a string or a non-empty list of text parts")
    texts = [_part_text(part, f"{where}[{i}]", i, seen) for i, part in enumerate(content)]
    return "\n".join(text for text in texts if text is not None)


def _part_text(part: Any, where: str, at: int, seen: _Seen) -> str | None:
    """The text of a part; None where it is an image or audio, which is noted."""
    if not isinstance(part, dict):
        _refuse(where, what_is(part), 'an object such as {"type": "text", "text": ...}')
    if part.get("type") != "text":
        seen.shown[seen.at, at] = shown_part(part, where, seen.sees)
        return None
    text = part.get("text")
    if not isinstance(text, str):
        _refuse(f"{where}.text", what_is(text), "a string")
    return text


def _tool_calls(calls: Any, role: str, where: str) -> list[Message]:
    where = f"{where}.tool_calls"
    if role != "assistant":
        _refuse(where, f"in a message of role `{role}`", "it in `assistant` messages only")
    if not isinstance(calls, list):
        _refuse(where, what_is(calls), "a list")
    return [_tool_call(call, f"{where}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> Message:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        _refuse(where, what_is(call), "an object with `function`")
    if not isinstance(function.get("name"), str):
        _refuse(f"{where}.function.name", what_is(function.get("name")), "a string")
    where = f"{where}.function.arguments"
    arguments = _arguments(function.get("arguments"), where)
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments(value: Any, where: str) -> Any:
    """Arguments as an object: endpoints give them as its JSON text, templates walk over them."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value) if value.strip() else None
        except (msgspec.MsgspecError, RecursionError) as error:
            expected = "the JSON text of an object"
            reason = f"`{where}` is a string that is no JSON, expected {expected}"
            raise InvalidRow(reason=reason) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse(where, what_is(value), "an object or its JSON text")
    return value


def ends_open(messages: Sequence[Message]) -> bool:
    """True where the last turn is the assistant's own words: the answer continues it."""
    last = messages[-1]
    return last["role"] == "assistant" and not last.get("tool_calls")
