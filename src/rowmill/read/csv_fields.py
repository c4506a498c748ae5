"""Record -> fields: one CSV record taken apart byte by byte, and why one is no row.

Promises: the fields that Python's `csv` module finds (`strict=False`), any bytes.
Knows nothing of: files, where records end, columns' names.
Memory: the record, twice.
"""

from __future__ import annotations

import re

from rowmill.rows import CsvLayout


def fields_of(record: bytes, layout: CsvLayout) -> list[bytes]:
    """Fields of one record without its line end; a quote left open lasts to the end of the record."""
    quote, delimiter = layout.quote.encode(), layout.delimiter.encode()
    if not quote or quote not in record:
        return record.split(delimiter)
    runs = re.compile(re.escape(quote) + b"+")
    fields: list[bytes] = []
    at = 0
    while at <= len(record):
        quoted = b""
        if record.startswith(quote, at):
            close = _closing(record, at + 1, runs)
            quoted = record[at + 1 : close].replace(quote * 2, quote)
            at = close + 1
        # Behind a closing quote, and in a field that begins with none, quotes are text.
        end = record.find(delimiter, at)
        end = end if end >= 0 else len(record)
        fields.append(quoted + record[at:end])
        at = max(end, at) + 1
    return fields


def _closing(record: bytes, begin: int, runs: re.Pattern[bytes]) -> int:
    """Where the quoted text from `begin` on is closed: an odd run of quotes ends with the closing one."""
    for run in runs.finditer(record, begin):
        if (run.end() - run.start()) % 2:
            return run.end() - 1
    return len(record)


def why_bad(record: bytes, num_fields: int, num_columns: int, *, is_open: bool) -> str:
    """Why a record is no row; empty where it is one."""
    if reason := why_no_text(record):
        return reason
    if is_open:
        return (
            "a quote is never closed, all that follows is one field; close it,"
            ' or set `read.quote = ""` if quotes are text'
        )
    if num_fields != num_columns:
        fields = "1 field" if num_fields == 1 else f"{num_fields} fields"
        return (
            f"{fields}, expected {num_columns} as the first record has;"
            " quote a field that holds a delimiter or a line end"
        )
    return ""


def why_no_text(record: bytes) -> str:
    """Why bytes are no text, empty where they are.

    A byte's value alone is told: it helps to find it and gives no text away.
    """
    try:
        record.decode()
    except UnicodeDecodeError as error:
        return (
            f"not valid UTF-8: byte 0x{record[error.start]:02X} at position {error.start + 1}"
            " of the record; write the file as UTF-8"
        )
    at = record.find(b"\0")
    if at < 0:
        return ""
    if 3 * record.count(0) > len(record):
        return "every other byte is NUL, as in UTF-16 text; write the file as UTF-8"
    return f"a raw NUL byte at position {at + 1} of the record; take it out"


def too_long(num_bytes: int, max_bytes: int) -> str:
    """Why a record that is not kept is no row."""
    return (
        f"a record of {num_bytes:,} bytes, limit {max_bytes:,};"
        " close a quote that was left open, or shorten the record"
    )
