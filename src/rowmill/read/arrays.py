"""JSON that is not one value a line -> JSON Lines: one array, or values one after the other.

Promises: a line for each element (value), its text byte for byte, but for line feeds and carriage
returns between tokens, which become spaces: two tokens never grow into one. A raw line feed within a
string, which JSON does not allow, becomes a carriage return, which it does not allow either: the row
stays one line and stays bad. What is cut, or goes on behind the array, is an error, never fewer rows.
Knows nothing of: whether an element is an object, or JSON at all inside its brackets.
Memory: some pieces (256 KiB), however long an element is. Time: numpy over the bytes that matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.errors import BadSource

Shape = Literal["lines", "array", "values"]
"""How JSON values stand in a text: one a line, in one array, or one after the other over many lines."""

SHAPE_BYTES = 1 << 20
"""So much of a text is looked at to tell its shape."""
PIECE_BYTES = 1 << 18
"""A piece and what is found in it stay in the cache of a core."""

_SPACE = b" \t\r\n"
_CUT_ARRAY = "the JSON array is cut: the text ends"
_WRONG_BRACKET = "a `}` closes the JSON array"
_NO_VALUE = "no value before the comma of a JSON array"
_NO_LAST_VALUE = "no value behind the last comma of a JSON array"
_TEXT_BEHIND = "text behind the JSON array"
_STRAY_BRACKET = "a bracket that closes nothing"
_CUT_VALUE = "the text ends inside a JSON value, which begins"
_QUOTE, _BACKSLASH, _COMMA, _FEED, _RETURN, _BLANK = b'"\\,\n\r '
_MATTERS = bytes(byte in b'"\\{}[],\n\r' for byte in range(256))
_STEP = np.zeros(256, np.int8)
_STEP[list(b"{[")] = 1
_STEP[list(b"}]")] = -1

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.intp]
_Flags = npt.NDArray[np.bool_]


def shape_of(head: bytes) -> Shape:
    """How the values stand in a text that begins so (`SHAPE_BYTES` of it, or all of it).

    An array is what begins with `[`, unless its first line is a value by itself and more lines follow.
    Values over many lines are told from JSON Lines by the first two lines: one that is an object by
    itself means JSON Lines, so that a first line that is broken remains one bad row.
    """
    text = head.lstrip(_SPACE)
    first, feed, rest = text.partition(b"\n")
    if text.startswith(b"["):
        is_line = feed and rest.strip(_SPACE) and _is_value(first)
        return "lines" if is_line else "array"
    if not text.startswith(b"{") or not feed or _is_value(first):
        return "lines"
    second = rest.lstrip(_SPACE).partition(b"\n")[0]
    return "lines" if second.startswith(b"{") and _is_value(second) else "values"


def _is_value(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def to_lines(
    blocks: Iterable[bytes | memoryview], *, shape: Shape, path: str, offset: int = 0
) -> Iterator[bytearray]:
    """The text of an array, or of values one after the other, as JSON Lines.

    Args:
        blocks: the text, behind a byte order mark.
        path: how errors name it.
        offset: where the text begins in its file; errors count bytes from the file's begin.
    Raises: BadSource where the text is cut, goes on behind its array, or has no value between commas.
    """
    splitter = _Array(path, offset) if shape == "array" else _Values(path, offset)
    for block in blocks:
        view = memoryview(block)
        for at in range(0, len(view), PIECE_BYTES):
            lines = splitter.feed(bytearray(view[at : at + PIECE_BYTES]))
            if lines:
                yield lines
    splitter.finish()


class _Found(NamedTuple):
    """What matters in a piece, outside strings. Closing quotes are among it: they tell of a value."""

    at: _Places
    what: _Bytes
    depth: npt.NDArray[np.int64]
    """Behind each byte."""


class _Splitter:
    """Knows strings and depth over the borders of pieces."""

    def __init__(self, path: str, offset: int) -> None:
        self._path = path
        self._offset = offset
        """Of the piece at hand, in the file."""
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        """The next piece's first byte stands behind a backslash."""

    def feed(self, piece: bytearray) -> bytearray:
        """The lines of a piece. `piece` is used up."""
        raise NotImplementedError

    def finish(self) -> None:
        """Told at the end. Raises: BadSource where the text cannot end so."""
        raise NotImplementedError

    def _scan(self, piece: bytearray) -> _Found:
        """Find what matters; raw line feeds in strings are replaced at once."""
        text = np.frombuffer(piece, np.uint8)
        at = np.flatnonzero(np.frombuffer(piece.translate(_MATTERS), np.bool_))
        what = text[at]
        is_quote = what == _QUOTE
        if self._is_escaped or b"\\" in piece:
            is_quote &= ~self._behind_backslash(at, what, len(piece))[at]
        inside = np.bitwise_xor.accumulate(is_quote.view(np.uint8)).view(np.bool_)
        if self._in_string:
            inside = ~inside
        if len(inside):
            self._in_string = bool(inside[-1])
        text[at[inside & (what == _FEED)]] = _RETURN
        outside = ~inside
        at, what = at[outside], what[outside]
        depth = np.cumsum(_STEP[what], dtype=np.int64) + self._depth
        if len(depth):
            self._depth = int(depth[-1])
        return _Found(at, what, depth)

    def _behind_backslash(self, at: _Places, what: _Bytes, num_bytes: int) -> _Flags:
        """Which bytes a backslash takes the meaning of: each second one in a run of them takes that of the next."""
        taken = np.zeros(num_bytes + 1, np.bool_)
        taken[0] = self._is_escaped
        slashes = at[what == _BACKSLASH]
        if len(slashes):
            index = np.arange(len(slashes))
            begins = np.empty(len(slashes), np.bool_)
            begins[0] = True
            np.not_equal(np.diff(slashes), 1, out=begins[1:])
            first = np.maximum.accumulate(np.where(begins, index, 0))
            in_run = index - first
            if self._is_escaped and slashes[0] == 0:
                in_run[first == 0] += 1
            taken[slashes[in_run & 1 == 0] + 1] = True
        self._is_escaped = bool(taken[-1])
        return taken

    def _bad(self, what: str, at: int) -> BadSource:
        reason = f"`{self._path}`: {what} at byte {self._offset + at:,}; mend the file"
        return BadSource(reason=reason)


class _Array(_Splitter):
    """One array: its commas become line feeds, its brackets spaces."""

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(path, offset)
        self._state: Literal["before", "within", "behind"] = "before"
        self._num_commas = 0
        self._has_value = False
        """The element at hand has a byte already."""

    def feed(self, piece: bytearray) -> bytearray:
        num_bytes = len(piece)
        if self._state == "before":
            if not piece.lstrip(_SPACE):
                self._offset += num_bytes
                return bytearray()
            begin = num_bytes - len(piece.lstrip(_SPACE))
            piece[: begin + 1] = b" " * (begin + 1)  # the bracket itself: `shape_of` saw it
            self._state = "within"
            self._depth = 1
        if self._state == "behind":
            self._expect_end(piece, 0)
            lines = bytearray()
        else:
            lines = self._lines(piece)
        self._offset += num_bytes
        return lines

    def finish(self) -> None:
        if self._state != "behind":
            raise self._bad(_CUT_ARRAY, 0)

    def _lines(self, piece: bytearray) -> bytearray:
        found = self._scan(piece)
        end = None
        if len(found.depth) and found.depth.min() <= 0:
            last = int(np.argmax(found.depth <= 0))
            end = int(found.at[last])
            if piece[end] != ord("]"):
                raise self._bad(_WRONG_BRACKET, end)
            found = _Found(found.at[:last], found.what[:last], found.depth[:last])
        text = np.frombuffer(piece, np.uint8)
        is_break = (found.what == _FEED) | (found.what == _RETURN)
        is_comma = (found.what == _COMMA) & (found.depth == 1)
        self._expect_values(piece, found.at[~is_break], is_comma[~is_break], end)
        text[found.at[is_break]] = _BLANK
        text[found.at[is_comma]] = _FEED
        if end is None:
            return piece
        self._state = "behind"
        self._expect_end(piece, end + 1)
        return piece[:end] + b"\n"

    def _expect_values(
        self, piece: bytearray, at: _Places, is_comma: _Flags, end: int | None
    ) -> None:
        """Each comma stands behind a value, and so does the last bracket where there are commas."""
        commas = at[is_comma]
        self._num_commas += len(commas)
        begin = 0
        if len(commas):
            first = int(commas[0])
            if not self._has_value and not piece[:first].strip(_SPACE):
                raise self._bad(_NO_VALUE, first)
            self._expect_between(piece, at, is_comma)
            begin = int(commas[-1]) + 1
            self._has_value = False
        self._has_value = self._has_value or bool(piece[begin:end].strip(_SPACE))
        if end is not None and self._num_commas and not self._has_value:
            raise self._bad(_NO_LAST_VALUE, end)

    def _expect_between(self, piece: bytearray, at: _Places, is_comma: _Flags) -> None:
        """Commas with nothing that matters between them may have a plain value there, or nothing."""
        near = np.flatnonzero(is_comma[1:] & is_comma[:-1])
        begins, ends = at[near] + 1, at[near + 1]
        text = np.frombuffer(piece, np.uint8)
        is_plain = (text[begins] > _BLANK) | (text[ends - 1] > _BLANK)
        unsure = ~is_plain | (begins == ends)
        for begin, end in zip(begins[unsure].tolist(), ends[unsure].tolist(), strict=True):
            if not piece[begin:end].strip(_SPACE):
                raise self._bad(_NO_VALUE, end)

    def _expect_end(self, piece: bytearray, at: int) -> None:
        rest = piece[at:].lstrip(_SPACE)
        if rest:
            raise self._bad(_TEXT_BEHIND, len(piece) - len(rest))


class _Values(_Splitter):
    """Values one after the other: each that closes its brackets ends a line, and so does a break outside of all."""

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(path, offset)
        self._is_blank = True
        """The line at hand has no byte yet but white space."""
        self._begin = offset
        """Of the value at hand."""

    def feed(self, piece: bytearray) -> bytearray:
        found = self._scan(piece)
        if len(found.depth) and found.depth.min() < 0:
            at = int(found.at[np.argmax(found.depth < 0)])
            raise self._bad(_STRAY_BRACKET, at)
        text = np.frombuffer(piece, np.uint8)
        is_break = (found.what == _FEED) | (found.what == _RETURN)
        is_end = (_STEP[found.what] < 0) & (found.depth == 0)
        is_line = is_break & (found.depth == 0) & ~self._follows_nothing(piece, found)
        text[found.at[is_break]] = _BLANK
        text[found.at[is_line]] = _FEED
        ends = found.at[is_end]
        breaks = found.at[is_end | is_line]
        if len(breaks):
            behind = int(breaks[-1]) + 1
            self._is_blank = True
        else:
            behind = 0
        rest = piece[behind:].lstrip(_SPACE)
        if self._is_blank and rest:
            self._begin = self._offset + len(piece) - len(rest)
            self._is_blank = False
        self._offset += len(piece)
        if not len(ends):
            return piece
        return bytearray(np.insert(text, ends + 1, _FEED).tobytes())

    def finish(self) -> None:
        if self._depth or self._in_string:
            self._offset = self._begin
            raise self._bad(_CUT_VALUE, 0)

    def _follows_nothing(self, piece: bytearray, found: _Found) -> _Flags:
        """For each break outside of all brackets: whether only white space stands before it in its line."""
        at, what = found.at, found.what
        nothing = np.zeros(len(at), np.bool_)
        is_break = ((what == _FEED) | (what == _RETURN)) & (found.depth == 0)
        begins_line = is_break | ((_STEP[what] < 0) & (found.depth == 0))
        if len(at) and is_break[0]:
            nothing[0] = self._is_blank and not piece[: at[0]].strip(_SPACE)
        follows = is_break[1:] & begins_line[:-1]
        nothing[1:] = follows & (np.diff(at) == 1)
        for index in (np.flatnonzero(follows & ~nothing[1:]) + 1).tolist():
            nothing[index] = not piece[at[index - 1] + 1 : at[index]].strip(_SPACE)
        return nothing
