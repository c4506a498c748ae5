"""One results file: what it is made of, and what it became.

Promises: a part can be written by another process, from its specification and the storage alone.
Knows nothing of: how it is written.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec

from rowmill.journal import Commit
from rowmill.rows import Shard
from rowmill.validate.ids import IdColumns, id_names
from rowmill.validate.salvage import Salvage
from rowmill.write.form import Form

if TYPE_CHECKING:
    import pyarrow as pa


class Columns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The carried columns of a whole run, so that all parts have the same."""

    schema: str = ""
    """Schema of the carried columns in every part, in base64."""
    json_schema: str = ""
    """Schema that lines of JSON are read with, in base64."""
    answers: str = ""
    """JSON Schema that the job holds its answers to; empty for none."""
    dimensions: int = 0
    """Numbers in each vector; 0 where there is none."""
    notes: list[str] = []
    """Columns that are not of one type in all files, for people."""


class PartSpec(msgspec.Struct, frozen=True):
    """One results file: which shards it covers and what lies in them."""

    name: str
    shards: list[Shard]
    limit: list[int]
    """One past the last ordinal that belongs to the run, for each shard."""
    commits: list[Commit]
    prefix: str
    url: str = ""
    form: Form = Form()
    columns: Columns = Columns()
    slices: list[list[tuple[int, int, int]]] = []
    """In completion order: (index into `shards`, first ordinal, one past the last) of each commit."""

    def whole_slices(self) -> list[tuple[Shard, int, int]]:
        """Each shard, from its beginning to what is the last of it that belongs to the run."""
        return [(shard, 0, limit) for shard, limit in zip(self.shards, self.limit, strict=True)]


class PartDone(msgspec.Struct, frozen=True):
    """A results file as it was written."""

    name: str
    num_rows: int
    num_bytes: int
    digest: str
    num_units: int = 0
    """Shards, or in completion order tasks, that lie in it; 0: not known."""
    made_of: str = ""
    """Digest of all that it was made of; a part that would be made of the same is kept."""


def salvage_of(prefix: str, form: Form) -> Salvage:
    """What of bad lines results carry, whose own columns begin with `prefix`."""
    return Salvage(prefix, IdColumns(id_names(form.id_column or "")))


def packed_schema(schema: pa.Schema) -> str:
    """A schema as text."""
    return base64.b64encode(schema.serialize()).decode()


def unpacked_schema(text: str) -> pa.Schema:
    """The schema of a text; without columns where the text is empty."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) if text else pa.schema([])
