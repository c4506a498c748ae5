"""First bytes of a CSV file -> its layout: columns, delimiter, quote.

Promises: nothing is guessed from the text; a file without usable columns is refused with what to do.
Knows nothing of: where the bytes come from, the records behind the first one.
Memory: the first bytes.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from rowmill.errors import BadSource
from rowmill.read.csv_cut import RecordCutter
from rowmill.read.csv_fields import fields_of, why_no_text
from rowmill.read_config import ReadConfig
from rowmill.rows import CsvLayout

HEADER_BYTES = 1 << 20
"""The first record must end within so much text."""

MAX_NAMED = 5

_TAB_SUFFIXES = (".tsv", ".tab")
_PACKED_SUFFIXES = (".gz", ".zst", ".bz2", ".xz")


def read_layout(
    first_bytes: bytes, *, is_all: bool, read: ReadConfig, name: str
) -> tuple[CsvLayout, int]:
    """The layout of a file, and the offset behind its header; 0 where it has none.

    Args:
        first_bytes: the text from its beginning, a byte order mark left out, `HEADER_BYTES` of it at least
            where there is so much.
        is_all: there is no more text.
        name: how messages name the file; its suffix decides on a delimiter that is not set.
    Raises: BadSource where a delimiter or quote cannot be one, or the first record names no columns.
    """
    layout = _signs(read, name)
    head = first_bytes[:HEADER_BYTES]
    is_whole = is_all and len(first_bytes) <= HEADER_BYTES
    record, end = _first_record(head, layout, read, name, is_whole=is_whole)
    fields = fields_of(record, layout)
    if read.header:
        if reason := why_no_text(record):
            raise _refused(name, f"its header cannot be read: {reason}")
        columns = _names(fields, name)
    else:
        columns, end = tuple(f"column{at}" for at in range(1, len(fields) + 1)), 0
    return msgspec.structs.replace(layout, columns=columns), end


def _signs(read: ReadConfig, name: str) -> CsvLayout:
    delimiter = read.delimiter or _usual_delimiter(read, name)
    for key, sign in (("delimiter", delimiter), ("quote", read.quote)):
        if sign and (not sign.isascii() or sign in "\0\r\n"):
            reason = (
                f"`read.{key}` is {sign!a}, expected one ASCII character"
                " other than NUL and line ends"
            )
            raise BadSource(reason=reason)
    if delimiter == read.quote:
        reason = f"`read.delimiter` and `read.quote` are both {delimiter!a}; change one"
        raise BadSource(reason=reason)
    return CsvLayout(columns=(), delimiter=delimiter, quote=read.quote)


def _usual_delimiter(read: ReadConfig, name: str) -> str:
    name = name.lower()
    for suffix in _PACKED_SUFFIXES:
        name = name.removesuffix(suffix)
    return "\t" if read.format == "tsv" or name.endswith(_TAB_SUFFIXES) else ","


def _first_record(
    head: bytes, layout: CsvLayout, read: ReadConfig, name: str, *, is_whole: bool
) -> tuple[bytes, int]:
    """The first record that is not blank, without its line end, and the offset behind it."""
    what = "header" if read.header else "first record"
    cutter = RecordCutter(layout)
    ends = cutter.ends(head).tolist()
    if is_whole:
        ends += cutter.last_ends().tolist()
    begin = 0
    for end in ends:
        record = head[begin:end]
        if record.strip(b"\r\n"):
            if is_whole and end == len(head) and cutter.is_inside:
                why = f"a quote in its {what} is never closed; close it"
                raise _refused(name, f'{why}, or set `read.quote = ""` if quotes are text')
            return _without_line_end(record), end
        begin = end
    if not is_whole:
        why = (
            f"its {what} does not end within {len(head):,} bytes; look for a quote that is not"
        )
        raise _refused(name, f"{why} closed, or set `read.quote` as the file has it")
    if read.header:
        why = "its header is missing, there is no record at all; write the names of the columns"
        raise _refused(name, f"{why} as the first record")
    raise _refused(name, "it has no record at all; leave it out")


def _without_line_end(record: bytes) -> bytes:
    if record.endswith(b"\r\n"):
        return record[:-2]
    return record[:-1] if record.endswith((b"\r", b"\n")) else record


def _names(fields: list[bytes], name: str) -> tuple[str, ...]:
    """Column names of a header; one that is empty is called by its place, `column3`."""
    names = [field.decode() or f"column{at}" for at, field in enumerate(fields, 1)]
    twice = [column for column, count in Counter(names).items() if count > 1]
    if twice:
        named = ", ".join(f"`{column}`" for column in twice[:MAX_NAMED])
        more = f" and {len(twice) - MAX_NAMED} more" if len(twice) > MAX_NAMED else ""
        why = f"its header has more than one column named {named}{more}; rename all but one"
        raise _refused(name, why)
    return tuple(names)


def _refused(name: str, why: str) -> BadSource:
    return BadSource(reason=f"`{name}`: {why}")
