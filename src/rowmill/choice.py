"""What an answer consists of: choices, tool calls, vectors of chunks.

Knows nothing of: rows.
"""

from __future__ import annotations

from typing import Any

import msgspec

NULL = msgspec.Raw(b"null")


class ToolCall(msgspec.Struct, frozen=True):
    """A function that an answer asks to be called."""

    id: str | None = None
    """The endpoint's name for the call, to be given with its result; null where nobody gave one."""
    name: str = ""
    arguments: str = ""
    """As the model wrote them: the JSON text of an object, if it kept to what it was asked."""


class Choice(msgspec.Struct, frozen=True, omit_defaults=False):
    """One of the answers of a row with n > 1, or with token ids or log-probabilities asked for."""

    index: int
    text: str
    finish_reason: str = ""
    token_ids: list[int] | None = None
    logprobs: list[dict[str, Any]] | None = None
    """A position an entry: `token`, `logprob`, `top` (token -> logprob). Minus infinity is written as null."""
    parsed: msgspec.Raw = NULL
    """As in `Outcome`, of this answer."""
    violation: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] = []


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A part of a text that is too long for one vector."""

    start: int
    """First character of the text that is in it."""
    stop: int
    """One past the last."""
    embedding: bytes
    """As in `Outcome`."""
