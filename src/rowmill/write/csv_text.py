"""Batches -> CSV: RFC 4180 with line feeds.

Promises: a field is in quotes where it must be; null is an empty field, an empty text is `""`.
Knows nothing of: files.
Memory: one batch, as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowmill.write.value_text import plain_texts

if TYPE_CHECKING:
    import pyarrow as pa

_NEEDS_QUOTES = r'[",\r\n]|^$'


def csv_header(schema: pa.Schema) -> bytes:
    """The first record: the names of the columns."""
    import pyarrow as pa

    names = _quoted(pa.array(schema.names, pa.large_string())).to_pylist()
    return ",".join(names).encode() + b"\n"


def csv_records(batch: pa.RecordBatch) -> bytes:
    """One record a row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return b""
    fields = [
        pc.fill_null(_quoted(plain_texts(column).cast(pa.large_string())), "")
        for column in batch.columns
    ]
    comma = pa.scalar(",", pa.large_string())
    records = pc.binary_join_element_wise(*fields, comma).to_pylist()
    return "\n".join([*records, ""]).encode()


def _quoted(texts: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    needs = pc.match_substring_regex(texts, _NEEDS_QUOTES)
    if not pc.any(needs).as_py():
        return texts
    mark = pa.scalar('"', pa.large_string())
    doubled = pc.replace_substring(texts, '"', '""')
    nothing = pa.scalar("", pa.large_string())
    return pc.if_else(needs, pc.binary_join_element_wise(mark, doubled, mark, nothing), texts)
