r"""A line -> the same line without its mechanical faults, or as it was.

Promises: a line that can be read is changed at its ends only; one that cannot is changed only if it can be read then;
what a string says stays the same; `NaN`, `Infinity` and `-Infinity` become null outside of strings alone.
Knows nothing of: other lines, files, columns.
Memory: one line.
"""

from __future__ import annotations

import re

from rowmill.errors import Unreadable
from rowmill.mend.mends import Mends
from rowmill.read.jsonl import MAX_LINE_BYTES
from rowmill.validate.lines import split_columns

BOM = b"\xef\xbb\xbf"
_JSON_SPACE = b" \t\r\n"

_CONTROL = re.compile(rb"[\x00-\x1f]")
_CONTROL_IN_TEXT = re.compile(rb"[\x00-\x09\x0b-\x1f]")
# A backslash before a raw control character is a fault of another kind: such a string is none.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\[^\x00-\x1f][^"\\]*+)*+"|NaN|-?Infinity')
_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
_SHORT = {8: rb"\b", 9: rb"\t", 10: rb"\n", 12: rb"\f", 13: rb"\r"}


def is_plain(text: bytes) -> bool:
    """Whether whole lines are as they should be, as far as can be told without splitting them."""
    return (
        not text.startswith((b"\n", b" "))
        and b"\n\n" not in text
        and b"\n " not in text
        and b"NaN" not in text
        and b"Infinity" not in text
        and BOM not in text
        and _CONTROL_IN_TEXT.search(text) is None
        and is_utf8(text)
    )


def mend_line(line: bytes, mends: Mends) -> bytes | None:
    """The line, its line feed taken off, mended where that can be; None where it is blank.

    Args:
        mends: counts what is done.
    """
    if len(line) > MAX_LINE_BYTES:
        return line
    ended = line.rstrip(b"\r")
    text = ended
    while text.startswith(BOM):
        text = text.removeprefix(BOM)
        mends.boms += 1
    if not text.strip(_JSON_SPACE):
        mends.blank_lines += 1
        return None
    mends.line_ends += len(ended) < len(line)
    if not is_utf8(text):
        mends.not_utf8 += 1
        return text
    if _CONTROL.search(text) or b"NaN" in text or b"Infinity" in text:
        return _repaired(text, mends)
    return text


def is_row(line: bytes) -> bool:
    """Whether a line is one JSON object."""
    if b"\0" in line or not is_utf8(line):
        return False
    try:
        split_columns(line)
    except Unreadable:
        return False
    return True


def is_cut(line: bytes) -> bool:
    """Whether a line that is no row ends before its brackets and quotes do, or was never written."""
    if not line.strip(b"\0" + _JSON_SPACE):
        return True
    depth = 0
    for found in _BRACKET.finditer(line):
        token = found.group()
        if token == b'"':
            return True
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
    return depth > 0


def is_utf8(text: bytes) -> bool:
    """Whether all of it is UTF-8."""
    try:
        text.isascii() or text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _repaired(line: bytes, mends: Mends) -> bytes:
    if is_row(line):
        return line
    done = Mends()

    def repair(found: re.Match[bytes]) -> bytes:
        token = found.group()
        if token[:1] == b'"':
            text, number = _CONTROL.subn(_escaped, token)
            done.characters += number
            return text
        done.nulls += 1
        return b"null"

    new = _TOKEN.sub(repair, line)
    if not is_row(new):
        return line
    mends.add(done)
    return new


def _escaped(found: re.Match[bytes]) -> bytes:
    code = found.group()[0]
    return _SHORT.get(code, rb"\u%04x" % code)
