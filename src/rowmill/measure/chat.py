"""A conversation -> text, by the model's own chat template.

Promises: renders as Hugging Face's templates are meant to: same block trimming, `tojson` without ASCII escapes,
`raise_exception`, `{% generation %}`; in a sandbox; dates are those of the day the run began.
A conversation that ends with the assistant's words is continued: the text ends with them. A template that walks over parts
of contents is given parts, one that prints contents is given texts.
Knows nothing of: tokens.
Memory: one compiled template.
Source: the contract of chat templates in transformers (`apply_chat_template`, 4.40 and later).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from rowmill.errors import ConfigError, InvalidRow
from rowmill.sandbox import FAULTS, TOO_DEEP, TOO_MUCH, Sandbox, TooDeep, TooMuch

_PROBE = "rowmill asks"


class _Generation(Extension):
    """`{% generation %}` marks the assistant's own words for training; here it only shows what is inside."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own protocol

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str, named_tokens: Mapping[str, str], day: datetime) -> None:
        environment = self._environment = Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = day.strftime
        self._named = {"bos_token": "", "eos_token": "", **named_tokens}
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            reason = f"chat template, line {error.lineno}: {error.message}; set `engine.chat_template`"
            raise ConfigError(reason=reason) from error
        self._takes_parts = self._says([{"type": "text", "text": _PROBE}])
        self._needs_parts = self._takes_parts and not self._says(_PROBE)

    def _says(self, content: Any) -> bool:
        """Whether a message of this content is in its prompt, as a text and nothing else of it."""
        try:
            said = self._render(
                [{"role": "user", "content": content}], None, add_generation_prompt=True
            )
        except InvalidRow:
            return False
        return _PROBE in said and "'type'" not in said and '"type"' not in said

    def render(self, messages: Sequence[dict[str, Any]], tools: Any) -> str:
        """The prompt of a conversation.

        Raises:
            InvalidRow: the template refuses it; holds the template's own words.
        """
        has_parts = any(isinstance(turn.get("content"), list) for turn in messages)
        if has_parts and not self._takes_parts:
            reason = "the chat template knows no images or audio; set `engine.chat_template`"
            raise InvalidRow(reason=reason)
        if self._needs_parts and not has_parts:
            messages = [_in_parts(turn) for turn in messages]
        last = messages[-1]
        if last["role"] != "assistant":
            return self._render(messages, tools, add_generation_prompt=True)
        if last.get("tool_calls"):
            reason = "the conversation ends with the assistant's tool calls, expected their results behind them"
            raise InvalidRow(reason=reason)
        said = _text(last["content"])
        if not said.strip():  # an empty turn, continued, is a new one
            return self._continue_nothing(messages, tools)
        text = self._render(messages, tools, add_generation_prompt=False)
        return _cut_behind(text, said)

    def _continue_nothing(self, messages: Sequence[dict[str, Any]], tools: Any) -> str:
        if len(messages) == 1:
            reason = "the conversation is one empty `assistant` message, expected something to answer"
            raise InvalidRow(reason=reason)
        return self._render(messages[:-1], tools, add_generation_prompt=True)

    def _render(
        self, messages: Sequence[dict[str, Any]], tools: Any, *, add_generation_prompt: bool
    ) -> str:
        try:
            values = {
                "messages": messages,
                "tools": tools,
                "documents": None,
                "add_generation_prompt": add_generation_prompt,
            }
            return self._environment.text_of(self._template, {**values, **self._named})
        except TooDeep as error:
            raise InvalidRow(reason=f"the chat template {TOO_DEEP}") from error
        except TooMuch as error:
            raise InvalidRow(reason=f"the chat template {TOO_MUCH}") from error
        except TemplateError as error:
            reason = f"the chat template refuses the conversation: {error.message}"
            raise InvalidRow(reason=reason) from error
        except FAULTS as error:
            # What an expression of the template raises on data it was not written for; its text may hold the data.
            reason = f"the chat template fails on the conversation: {type(error).__name__}"
            raise InvalidRow(reason=reason) from error


def _in_parts(turn: dict[str, Any]) -> dict[str, Any]:
    """The message for a template that walks over parts alone."""
    if not isinstance(turn.get("content"), str):
        return turn
    return {**turn, "content": [{"type": "text", "text": turn["content"]}]}


def _text(content: Any) -> str:
    """What a message says, without what it shows."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part["type"] == "text")
    return str(content)


def _cut_behind(text: str, said: str) -> str:
    """The text up to the end of what was said last; trailing space stays where the template kept it."""
    core = said.strip()
    at = text.rfind(core)
    if at < 0:
        reason = (
            "the chat template drops the last `assistant` message, so it cannot be continued"
        )
        raise InvalidRow(reason=reason)
    whole = said.lstrip()
    return text[: at + len(whole if text.startswith(whole, at) else core)]


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> None:
    raise TemplateError(message)
