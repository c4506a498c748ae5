"""The text of an answer -> its reasoning, its tool calls and the rest, by vLLM's own parsers.

Promises: they are asked as `vllm serve` asks them: reasoning first, tools in what is left; one that fails leaves the text whole.
Knows nothing of: rows, threads.
Memory: one parser an answer: they keep what they saw.
Source: vLLM 0.32, `vllm/reasoning`, `vllm/tool_parsers`; 0.25 has the latter in `vllm/entrypoints/openai`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from rowmill import errors
from rowmill.engines.thoughts import has_no_answer
from rowmill.rows import Choice, Outcome, ToolCall

_TOOLS = ("vllm.tool_parsers", "vllm.entrypoints.openai.tool_parsers")
_REQUESTS = (
    "vllm.entrypoints.openai.chat_completion.protocol",
    "vllm.entrypoints.openai.protocol",
)
_FOLDERS = {"reasoning_parser": ("reasoning",), "tool_call_parser": ("tool_parsers",)}
_NAMES = re.compile(r'^    "([\w.-]+)": \(', re.MULTILINE)
_FAILURES = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, ImportError)
"""What parsers raise on texts that they were not written for."""


def parser_mistake(setting: str, name: str) -> str:
    """What is wrong with the name of a parser, by the names in the files of the vLLM installed; empty where nothing is.

    Without vLLM, or with one whose files look otherwise, no name is wrong yet.
    """
    spec = find_spec("vllm")
    known: list[str] = []
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder, *_FOLDERS[setting], "__init__.py")
        known += _NAMES.findall(file.read_text("utf-8")) if file.is_file() else []
    if not known or name in known:
        return ""
    listed = ", ".join(f"`{one}`" for one in sorted(known))
    return f"`engine.{setting}` is `{name}`, which the vLLM installed does not have; it has {listed}"


def open_reader(engine: Any, reasoning: str | None, tools: str | None) -> Reader | None:
    """What reads the answers of vLLM's `engine` by parsers of these names; None where none is named.

    Raises:
        ConfigError: vLLM has none of such a name, or it does not go with the model's vocabulary.
    """
    if not (reasoning or tools):
        return None
    return Reader(engine.get_tokenizer(), reasoning=reasoning or "", tools=tools or "")


class Reader:
    """Reads the answers of one engine."""

    def __init__(self, tokenizer: Any, *, reasoning: str, tools: str) -> None:
        """By the parsers of these names; empty for none.

        Raises:
            ConfigError: vLLM has none of such a name, or it does not go with the model's vocabulary.
        """
        self._tokenizer = tokenizer
        self._request_of = _first(_REQUESTS).ChatCompletionRequest
        self._reasoning = _parser("vllm.reasoning", "ReasoningParserManager", reasoning)
        self._tools = _parser(_TOOLS, "ToolParserManager", tools)
        try:
            self._fresh(self._reasoning)
            self._fresh(self._tools)
        except _FAILURES as error:
            words = " ".join(str(error).split())[:200]
            reason = f"`engine.reasoning_parser` or `engine.tool_call_parser` does not go with this model: {words}"
            raise errors.ConfigError(reason=reason) from error

    def read(self, outcome: Outcome, samples: Sequence[list[int]], tools: str) -> Outcome:
        """The outcome with what its text holds told apart.

        Args:
            samples: Token ids of each choice.
            tools: JSON text of the tools that the row was asked with; empty for none.
        """
        alone = Choice(index=0, text=outcome.text or "", finish_reason=outcome.finish_reason)
        request = self._request(tools)
        read: list[Choice] = []
        tokens = 0
        for choice, ids in zip(outcome.choices or [alone], samples, strict=False):
            text, parser = self._with_controls(choice.text, ids, request), None
            reasoning, content = None, text
            if self._reasoning is not None:
                parser = self._fresh(self._reasoning)
                reasoning, content = _parted(parser, text, request)
                tokens += _count(parser, ids) if reasoning else 0
            calls: list[ToolCall] = []
            if self._tools is not None and tools and content:
                calls, content = self._called(content, request)
            is_as_it_was = reasoning is None and not calls
            read.append(
                msgspec.structs.replace(
                    choice,
                    text=choice.text if is_as_it_was else content,
                    reasoning=reasoning,
                    tool_calls=calls,
                    finish_reason="tool_calls"
                    if calls and choice.finish_reason == "stop"
                    else choice.finish_reason,
                )
            )
        first = read[0]
        is_none = has_no_answer(first.text, first.reasoning, first.finish_reason)
        return msgspec.structs.replace(
            outcome,
            text=None if is_none else first.text,
            finish_reason=first.finish_reason,
            reasoning=first.reasoning,
            reasoning_tokens=tokens if self._reasoning is not None else None,
            tool_calls=first.tool_calls,
            choices=read if outcome.choices else [],
        )

    def _with_controls(self, text: str, ids: list[int], request: Any) -> str:
        """The text, with control tokens where a parser looks for them: they are left out of texts otherwise."""
        if getattr(request, "skip_special_tokens", True):
            return text
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def _request(self, tools: str) -> Any:
        """As `vllm serve` would have it."""
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": ""}]}
        if tools:
            asked |= {"tools": msgspec.json.decode(tools), "tool_choice": "auto"}
        try:
            request = self._request_of(**asked)
            for parser in (self._reasoning, self._tools):
                if parser is not None:
                    request = self._fresh(parser).adjust_request(request)
        except _FAILURES:
            return self._request_of(messages=asked["messages"])
        return request

    def _fresh(self, parser: Any) -> Any:
        return parser(self._tokenizer) if parser is not None else None

    def _called(self, text: str, request: Any) -> tuple[list[ToolCall], str]:
        try:
            found = self._tools(self._tokenizer, request.tools).extract_tool_calls(
                text, request
            )
        except _FAILURES:
            return [], text
        calls = [
            ToolCall(call.id, call.function.name or "", call.function.arguments or "")
            for call in found.tool_calls
        ]
        return (calls, found.content or "") if found.tools_called else ([], text)


def _parted(parser: Any, text: str, request: Any) -> tuple[str | None, str]:
    try:
        reasoning, content = parser.extract_reasoning(text, request)
    except _FAILURES:
        return None, text
    return reasoning, content or ""


def _count(parser: Any, ids: list[int]) -> int:
    """Tokens of the reasoning, tags left out where the parser does so; of parsers that do not count, all before the answer."""
    counted = int(parser.count_reasoning_tokens(ids))
    return counted or len(ids) - len(parser.extract_content_ids(ids))


def _first(names: Sequence[str]) -> Any:
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(names[-1])


def _parser(modules: str | Sequence[str], manager: str, name: str) -> Any:
    if not name:
        return None
    found = getattr(_first((modules,) if isinstance(modules, str) else modules), manager)
    get = found.get_reasoning_parser if "Reasoning" in manager else found.get_tool_parser
    try:
        return get(name)
    except (KeyError, ValueError) as error:
        reason = f"this vLLM has no parser `{name}`"
        raise errors.ConfigError(reason=reason) from error
