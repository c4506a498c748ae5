"""`[output]` + shards -> Form: as what, how compressed and in which order results are written.

Promises: nothing is left to be derived; the suffix of a file says how it is read.
Knows nothing of: how files are written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from rowmill.rows import Shard
from rowmill.write.answer_form import AnswerForm

if TYPE_CHECKING:
    # Processes that write a part need no job.
    from rowmill.config import Job, OutputConfig

FileFormat = Literal["jsonl", "parquet", "arrow", "csv"]
Compression = Literal["none", "gzip", "zstd"]
Order = Literal["input", "completion"]

_PACKED: dict[Compression, str] = {"none": "", "gzip": ".gz", "zstd": ".zst"}
SUFFIXES: dict[str, FileFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_INSIDE = ("parquet", "arrow")
"""Formats that compress their own pages: no suffix tells of it."""


class Form(msgspec.Struct, frozen=True):
    """How results are written."""

    format: FileFormat = "jsonl"
    compression: Compression = "none"
    order: Order = "input"
    own: AnswerForm | None = None
    """How answers are written that are no text; None where they are."""
    id_column: str | msgspec.UnsetType = msgspec.UNSET
    """Column of the user's id, where the job names one: what is carried of a line that cannot be read."""

    @property
    def suffix(self) -> str:
        """What names of such files end in."""
        packed = "" if self.format in _INSIDE else _PACKED[self.compression]
        return f".{self.format}{packed}"

    @property
    def is_lines(self) -> bool:
        """Whether rows are joined as text, without types."""
        return self.format == "jsonl"

    @property
    def has_vectors(self) -> bool:
        """Whether answers are vectors, of which a table says how long they are."""
        return self.own is not None and self.own.kind == "embed"


def answer_form_of(job: Job) -> AnswerForm | None:
    """How a job's answers are written where they are no text; else None."""
    policy = job.validate_.too_long
    if job.kind not in ("embed", "classify", "score", "rerank"):
        return None
    is_text = job.kind == "classify" and bool(job.classify.names)
    return AnswerForm(
        kind=job.kind,
        bits=16 if job.output.vectors == "float16" else 32,
        has_chunks=policy == "chunk",
        has_cuts=policy in ("truncate_left", "truncate_right") and not is_text,
    )


def form_of(
    output: OutputConfig,
    shards: Iterable[Shard],
    own: AnswerForm | None = None,
    id_column: str = "",
) -> Form:
    """The form that a job asks for, for its input."""
    format_, compression = output.format, output.compression
    if format_ == "auto":
        formats = {shard.format for shard in shards}
        format_ = "parquet" if formats and formats <= {"parquet", "arrow"} else "jsonl"
    if compression == "auto":
        compression = "zstd" if format_ == "parquet" else "none"
    return Form(format_, compression, output.order, own, id_column or msgspec.UNSET)


def form_of_name(name: str) -> Form | None:
    """The form that a file's name asks for; None where it says none."""
    stem, compression = name, None
    for packed, suffix in _PACKED.items():
        if suffix and name.endswith(suffix):
            stem, compression = name.removesuffix(suffix), packed
    format_ = next((f for s, f in SUFFIXES.items() if stem.endswith(s)), None)
    if format_ is None or (format_ in _INSIDE and compression):
        return None
    return Form(format_, compression or ("zstd" if format_ == "parquet" else "none"))
