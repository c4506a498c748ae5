"""Shards -> notes: where files of one input differ in their columns.

Promises: every column that is absent in some files, has another type in some, or is a folder's column as well, is named
once, with a file for each way it is. Of files of lines, which may have other columns in each, the first row is looked at.
Knows nothing of: what results make of it (write/unify.py does that).
Memory: a schema a file while they are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rowmill.read.pieces import shown
from rowmill.rows import Shard

if TYPE_CHECKING:
    import pyarrow as pa

MAX_NAMED = 8
"""Columns that are told; more are counted."""


def drift_notes(
    shards: Sequence[Shard], own_columns: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """A note on columns that differ between files of tables, and one on each column that folders have too.

    Args:
        own_columns: by file of lines, the columns of its folders that its first row has itself.
    """
    clashes: dict[str, str] = {}
    for file, names in (own_columns or {}).items():
        for name in names:
            clashes.setdefault(name, file)
    of_lines = [
        f"`{shown(name)}` is a column of rows of {file} and of the folder it lies in: a row's own counts"
        for name, file in clashes.items()
    ]
    return [*_of_tables(shards), *of_lines]


def _of_tables(shards: Sequence[Shard]) -> list[str]:
    first_shards = {shard.name: shard for shard in shards if shard.format != "jsonl"}
    if not first_shards or (len(first_shards) == 1 and not any(s.partitions for s in shards)):
        return []
    from rowmill.read.shards import own_schema, with_folders

    own = {name: own_schema(shard) for name, shard in first_shards.items()}
    schemas = {name: with_folders(own[name], shard) for name, shard in first_shards.items()}
    return [*_differing(schemas), *_clashing(first_shards, own)]


def _differing(schemas: dict[str, pa.Schema]) -> list[str]:
    names = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    told = []
    for name in names:
        ways: dict[str, str] = {}
        for file, schema in schemas.items():
            at = schema.get_field_index(name)
            ways.setdefault("absent" if at < 0 else str(schema.field(at).type), file)
        if len(ways) > 1:
            each = ", ".join(f"{way} in {file}" for way, file in ways.items())
            told.append(f"`{shown(name)}` is {each}")
    if not told:
        return []
    more = f"; and {len(told) - MAX_NAMED} more" if len(told) > MAX_NAMED else ""
    return [f"columns differ between files: {'; '.join(told[:MAX_NAMED])}{more}"]


def _clashing(shards: dict[str, Shard], schemas: dict[str, pa.Schema]) -> list[str]:
    clashes: dict[str, str] = {}
    for file, shard in shards.items():
        for name, _ in shard.partitions:
            if name in schemas[file].names:
                clashes.setdefault(name, file)
    return [
        f"`{shown(name)}` is a column of {file} and of the folder it lies in: the file's own counts"
        for name, file in clashes.items()
    ]
