"""A line -> its columns, each as the JSON text it was; or what is wrong with the line.

Promises: strict JSON (RFC 8259): no NaN, no trailing text, one object a line; of equal keys the last is given (see once.py);
a lone surrogate or a number out of range in a column that is not used does no harm.
Knows nothing of: which columns matter.
Memory: one line.
"""

from __future__ import annotations

import json
import re
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn

import msgspec
from msgspec import Raw

from rowmill.errors import InvalidRow, Unreadable

Columns = dict[str, bytes]
"""Column name -> JSON text of its value, as in the source."""

_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./+-]{1,40}\Z")
_NO_JSON = re.compile(r"(?<![\w.])-?(?:NaN|nan|Infinity|inf|Inf|infinity|NAN|INF)(?!\w)")
_decode_columns = msgspec.json.Decoder(dict[str, Raw]).decode


def split_columns(line: bytes) -> Columns:
    """The columns of a line.

    Raises:
        Unreadable: the line is no strict JSON object; says what was found, and at which byte.
    """
    try:
        return {name: bytes(raw) for name, raw in _decode_columns(line).items()}
    except RecursionError as error:
        reason = "the line is nested too deeply to be read; flatten it"
        raise Unreadable(reason=reason) from error
    except msgspec.MsgspecError:
        return _split_slowly(line)


def _split_slowly(line: bytes) -> Columns:
    """As `split_columns`, for what msgspec refuses: to accept lone surrogates, or to say what is wrong."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        is_cut = error.reason == "unexpected end of data"
        hint = "; an unfinished last line, its writer may have died" if is_cut else ""
        reason = f"the line is no UTF-8 at byte {error.start}{hint}"
        raise Unreadable(reason=reason) from error
    try:
        return _Splitter(text).columns()
    except JSONDecodeError as error:
        _refuse(text, error)
    except RecursionError as error:
        reason = "the line is nested too deeply to be read; flatten it"
        raise Unreadable(reason=reason) from error


class _Splitter:
    """Walks the top level of one object; values are only measured."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decoder = JSONDecoder(
            parse_float=len, parse_int=len, parse_constant=self._refuse_constant
        )

    def columns(self) -> Columns:
        text, at = self._text, self._skip(0)
        if text[at : at + 1] != "{":
            value, stop = self._decoder.raw_decode(text, at)
            self._expect_end(stop)
            reason = (
                f'the line is {what_is(value)}, expected an object such as {{"prompt": ...}}'
            )
            raise Unreadable(reason=reason)
        columns: Columns = {}
        at = self._skip(at + 1)
        if text[at : at + 1] == "}":
            self._expect_end(at + 1)
            return columns
        while True:
            name, at = self._name(at)
            start = self._skip(at)
            _, at = self._decoder.raw_decode(text, start)
            columns[name] = text[start:at].encode()
            at = self._skip(at)
            if text[at : at + 1] == "}":
                self._expect_end(at + 1)
                return columns
            at = self._skip(self._expect(",", at))

    def _name(self, at: int) -> tuple[str, int]:
        if self._text[at : at + 1] != '"':
            what = "Expecting property name enclosed in double quotes"
            raise JSONDecodeError(what, self._text, at)
        name, at = self._decoder.raw_decode(self._text, at)
        return name, self._expect(":", self._skip(at))

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def _expect(self, mark: str, at: int) -> int:
        if self._text[at : at + 1] != mark:
            what = f"Expecting `{mark}`"
            raise JSONDecodeError(what, self._text, at)
        return at + 1

    def _expect_end(self, at: int) -> None:
        at = self._skip(at)
        if at < len(self._text):
            what = "Extra data"
            raise JSONDecodeError(what, self._text, at)

    def _refuse_constant(self, literal: str) -> NoReturn:
        reason = f"`{literal}` is no JSON value; write null, or a string"
        raise Unreadable(reason=reason)


def _refuse(text: str, error: JSONDecodeError) -> NoReturn:
    at = len(text[: error.pos].encode())
    if error.msg == "Extra data":
        reason = f"text behind the JSON value at byte {at}; expected one object a line"
        raise Unreadable(reason=reason) from error
    literal = _NO_JSON.match(text, error.pos)
    if literal:
        reason = f"`{literal.group()}` is no JSON value at byte {at}; write null, or a string"
        raise Unreadable(reason=reason) from error
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        reason = f"the line is no JSON: it stops short at byte {len(text.encode())}; an unfinished last line?"
        raise Unreadable(reason=reason) from error
    what = error.msg[:1].lower() + error.msg[1:]
    reason = f"the line is no JSON at byte {at}: {what}"
    raise Unreadable(reason=reason) from error


def value_of(raw: bytes, field: str) -> Any:
    """The value of a column that is used.

    Raises:
        InvalidRow: it holds a lone surrogate, or a number out of range.
        Unreadable: it is no UTF-8.
    """
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError as error:
        reason = f"`{field}` holds a number out of range; expected one that a float can hold"
        raise InvalidRow(reason=reason) from error
    except msgspec.DecodeError as error:
        if not _is_utf8(raw):
            reason = f"`{field}` is no UTF-8, expected a file in UTF-8"
            raise Unreadable(reason=reason) from error
        reason = f"`{field}` holds half a surrogate pair (\\ud800 to \\udfff), expected whole characters"
        raise InvalidRow(reason=reason) from error
    except RecursionError as error:
        reason = f"`{field}` is nested too deeply; flatten it"
        raise InvalidRow(reason=reason) from error


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def shown(name: str) -> str:
    """A name from the input, safe to print on one line."""
    text = json.dumps(name, ensure_ascii=True)[1:-1] if not name.isprintable() else name
    return text if len(text) <= 60 else text[:57] + "..."


def word(value: Any) -> str:
    """A short plain word from the input in backticks, or its kind where it may be private text."""
    if isinstance(value, str) and _PLAIN_WORD.match(value):
        return f"`{value}`"
    return what_is(value)


def names(columns: Columns) -> str:
    """The columns a row has, for a sentence."""
    if not columns:
        return "the row has none"
    listed = ", ".join(f"`{shown(name)}`" for name in list(columns)[:12])
    return f"the row has {listed}" + (", ..." if len(columns) > 12 else "")


def what_is(value: Any) -> str:
    """What a value is, in words, without the value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string" if value else "an empty string"
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "something else"
