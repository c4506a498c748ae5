"""A file's first bytes and its name -> what it is packed with and which format it holds.

Promises: bytes decide wherever they can, the suffix where they cannot; what is no input is told in words.
Knows nothing of: how a format is read.
Memory: none.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Literal

from rowmill.read.unpack import STDIN, Container, container_of
from rowmill.read_config import ReadConfig

FileFormat = Literal["jsonl", "json", "csv", "tsv", "parquet", "arrow"]
"""What a file holds. `json` is settled by its text: one value a line, an array, or values over many lines."""

PACKED_SUFFIXES = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz", ".lzma")
FORMAT_BY_SUFFIX: dict[str, FileFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}

JSON_SUFFIXES = tuple(s for s, name in FORMAT_BY_SUFFIX.items() if name in ("jsonl", "json"))

_TABLES = re.compile(rb"(?P<parquet>PAR1)|(?P<arrow>ARROW1|\xff\xff\xff\xff...\0)", re.DOTALL)
_ZIP = "holds a ZIP archive; unpack it"
_7Z = "holds a 7z archive; unpack it"
_TAR = "holds a tar archive; unpack it"
_SQLITE = "is an SQLite database; write its rows as JSON Lines"
_AVRO = "is Avro; write its rows as JSON Lines"
_ORC_FILE = "is ORC; write its rows as Parquet"
_WORKBOOK = "is a workbook; save its sheet as CSV"
_REFUSED = (
    (b"\xff\xfe\x00\x00", "is UTF-32 text; write it as UTF-8"),
    (b"\x00\x00\xfe\xff", "is UTF-32 text; write it as UTF-8"),
    (b"\xff\xfe", "is UTF-16 text; write it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text; write it as UTF-8"),
    (b"PK\x03\x04", _ZIP),
    (b"PK\x05\x06", _ZIP),
    (b"7z\xbc\xaf\x27\x1c", _7Z),
    (b"\x04\x22\x4d\x18", "is compressed with LZ4; unpack it, or use Zstandard"),
    (b"LZIP\x01", "is compressed with lzip; unpack it, or use xz"),
    (b"\x1f\x9d", "is compressed with compress (`.Z`); unpack it"),
    (b"\xff\x06\x00\x00sNaPpY", "is compressed with Snappy; unpack it"),
    (b"SQLite format 3\0", _SQLITE),
    (b"Obj\x01", _AVRO),
)
_FOREIGN_SUFFIXES = {
    ".zip": _ZIP,
    ".7z": _7Z,
    ".rar": "holds a RAR archive; unpack it",
    ".tar": _TAR,
    ".tgz": _TAR,
    ".tbz2": _TAR,
    ".txz": _TAR,
    ".xlsx": _WORKBOOK,
    ".xlsm": _WORKBOOK,
    ".xls": _WORKBOOK,
    ".ods": _WORKBOOK,
    ".avro": _AVRO,
    ".orc": _ORC_FILE,
    ".sqlite": _SQLITE,
    ".sqlite3": _SQLITE,
    ".duckdb": "is a DuckDB database; write its rows as Parquet",
}
_OFFICE = re.compile(rb"PK\x03\x04.{26}(?:\[Content_Types\]\.xml|xl/|_rels/)", re.DOTALL)
_ORC = re.compile(rb"ORC.{0,12}?[\x00-\x08\x0e-\x1f\x80-\xff]", re.DOTALL)
"""Text may begin with these letters, too: then no byte near is one that text does not have."""
ENCODING_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
"""What text in UTF-16 and UTF-32 begins with."""
_TAR_MARK = slice(257, 262)


def suffix_of(name: str) -> str:
    """The suffix that names the format, in small letters: `.csv` of `A.CSV.gz`; empty where there is none."""
    path = PurePath(name.lower())
    if path.suffix in PACKED_SUFFIXES:
        path = PurePath(path.stem)
    return path.suffix


def what_is(path: str, head: bytes, read: ReadConfig) -> tuple[Container, FileFormat]:
    """What a file is packed with, and which format is in it.

    Args:
        path: its name, or `-`.
        head: its first `HEAD_BYTES`; of standard input none are known yet.
        read: a format that the job sets holds for every file.
    """
    container = container_of(head)
    if read.format != "auto":
        return container, read.format
    table = table_of(head)
    if table:
        return "", table
    if path == STDIN:
        return "", "json"
    return container, FORMAT_BY_SUFFIX.get(suffix_of(path), "jsonl")


def table_of(head: bytes) -> Literal["", "parquet", "arrow"]:
    """Which format of tables begins so; empty for none."""
    match = _TABLES.match(head)
    if match is None:
        return ""
    return "parquet" if match["parquet"] else "arrow"


def foreign(name: str) -> str:
    """Why no row can be read from a file of such a name, as the end of a sentence; empty where its suffix does not say."""
    return _FOREIGN_SUFFIXES.get(suffix_of(name), "")


def problem_of(head: bytes) -> str:
    """Why no row can be read from a file that begins so, as the end of a sentence; empty where they may be."""
    if _OFFICE.match(head):
        return "is an Office file; save the sheet of a workbook as CSV"
    if _ORC.match(head):
        return _ORC_FILE
    for first_bytes, problem in _REFUSED:
        if head.startswith(first_bytes):
            return problem
    if head[_TAR_MARK] == b"ustar":
        return _TAR
    return ""


def problem_within(head: bytes) -> str:
    """The same of unpacked text, which may not be packed again, nor be a table: those are read in place."""
    if container_of(head):
        return "is packed a second time; unpack it once"
    table = table_of(head)
    if table:
        return (
            f"is {table.capitalize()}, which is read from a file of its own; write it into one"
        )
    return problem_of(head)
