"""Pieces of a streamed answer -> the body that the same answer would have had unstreamed.

Promises: a stream that ended before it said so is no answer; texts, tool calls and log-probabilities are joined
a choice each.
Knows nothing of: connections.
Memory: the answer.
Source: server-sent events (WHATWG HTML, 9.2), as OpenAI-compatible servers use them: one `data:` line an event.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill import errors


class Stream:
    """One answer, as it comes."""

    def __init__(self) -> None:
        self._rest = b""
        self._body: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._is_over = False

    def feed(self, piece: bytes) -> None:
        """Take bytes as they came.

        Raises:
            Disconnected: An event is no JSON.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def body(self) -> bytes:
        """The whole answer.

        Raises:
            Disconnected: The end did not come.
        """
        self.feed(b"\n")
        if not self._is_over and "error" not in self._body:
            raise errors.Disconnected(reason="the stream broke off before its end")
        body = self._body
        if self._choices:
            body["choices"] = [self._choices[index] for index in sorted(self._choices)]
            is_chat = "message" in body["choices"][0]
            body["object"] = "chat.completion" if is_chat else "text_completion"
        return msgspec.json.encode(body)

    def _event(self, text: bytes) -> None:
        if text == b"[DONE]":
            self._is_over = True
            return
        try:
            event = msgspec.json.decode(text)
            choices = event.pop("choices", None) or ()
        except (msgspec.DecodeError, AttributeError) as error:
            raise errors.Disconnected(
                reason="a piece of the stream is no JSON object"
            ) from error
        self._body |= {name: value for name, value in event.items() if value is not None}
        for piece in choices:
            self._join(piece)

    def _join(self, piece: dict[str, Any]) -> None:
        index = piece.get("index") or 0
        whole = self._choices.setdefault(index, {"index": index})
        delta = piece.pop("delta", None)
        if delta is not None:
            message = whole.setdefault("message", {"role": "assistant", "content": None})
            _join_message(message, delta)
        elif "text" in piece:
            whole["text"] = whole.get("text", "") + (piece.pop("text") or "")
        logprobs, ids = piece.pop("logprobs", None), piece.pop("token_ids", None)
        if logprobs:
            _join_lists(whole.setdefault("logprobs", {}), logprobs)
        if ids:
            whole["token_ids"] = whole.get("token_ids", []) + ids
        whole |= {name: value for name, value in piece.items() if value is not None}


def _join_message(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if value is None or name == "role":
            continue
        if name == "tool_calls":
            for call in value:
                _join_call(message.setdefault("tool_calls", []), call)
        elif isinstance(value, str):
            message[name] = (message.get(name) or "") + value


def _join_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    index = piece.pop("index", 0)
    while len(calls) <= index:
        calls.append({"type": "function", "function": {"name": "", "arguments": ""}})
    function = piece.pop("function", None) or {}
    for name, value in function.items():
        calls[index]["function"][name] = calls[index]["function"].get(name, "") + (value or "")
    calls[index] |= {name: value for name, value in piece.items() if value is not None}


def _join_lists(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    for name, value in piece.items():
        if isinstance(value, list):
            whole[name] = whole.get(name, []) + value
