"""Tables and columns -> the SQL of a pgvector sink.

Promises: each name is quoted; no value stands in a text.
Knows nothing of: connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rowmill.write.keyed.wanted import Metric, Wanted
from rowmill.write.kinds import is_marked

if TYPE_CHECKING:
    import pyarrow as pa

MARKS = "rowmill_loads"
"""Table, beside those with vectors, of the tasks that are loaded."""
STAGING = "rowmill_staging"
OPERATORS: dict[Metric, str] = {
    "cosine": "vector_cosine_ops",
    "l2": "vector_l2_ops",
    "dot": "vector_ip_ops",
}
MOST_INDEXED = 2_000
"""Dimensions of a `vector` that an HNSW index takes."""


class Names(msgspec.Struct, frozen=True):
    """A table, its schema and how its own columns are called."""

    table: str
    schema: str
    """Empty: the first one of the search path."""
    wanted: Wanted

    @property
    def whole(self) -> str:
        """The table, quoted."""
        return ".".join(quoted(part) for part in (self.schema, self.table) if part)

    @property
    def marks(self) -> str:
        """The table of what is loaded, quoted."""
        return ".".join(quoted(part) for part in (self.schema, MARKS) if part)


def names_of(table: str, wanted: Wanted) -> Names:
    """`table`, or `schema.table`."""
    schema, _, name = table.rpartition(".")
    return Names(name, schema, wanted)


def quoted(name: str) -> str:
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def sql_type(field: pa.Field) -> str:
    """The type of a column that is carried."""
    import pyarrow as pa

    types = pa.types
    if is_marked(field):
        return "json"
    if types.is_timestamp(field.type):
        return "timestamp with time zone" if field.type.tz else "timestamp without time zone"
    if types.is_date(field.type):
        return "date"
    if types.is_boolean(field.type):
        return "boolean"
    if types.is_integer(field.type):
        return "bigint"
    return "double precision" if types.is_floating(field.type) else "text"


def create_table(names: Names, schema: pa.Schema, dimensions: int) -> str:
    """The table of the vectors."""
    wanted = names.wanted
    key, chunk = quoted(wanted.key), quoted(wanted.chunk)
    columns = [
        f"{key} text NOT NULL",
        f"{chunk} integer NOT NULL",
        *(f"{quoted(field.name)} {sql_type(field)}" for field in schema),
        f"{quoted(wanted.vector)} vector({dimensions}) NOT NULL",
        f"PRIMARY KEY ({key}, {chunk})",
    ]
    return f"CREATE TABLE IF NOT EXISTS {names.whole} ({', '.join(columns)})"


def create_marks(names: Names) -> str:
    """The table of what is loaded."""
    return (
        f"CREATE TABLE IF NOT EXISTS {names.marks} (table_name text NOT NULL, run text NOT NULL,"
        " mark text NOT NULL, vectors bigint NOT NULL,"
        " loaded_at timestamp with time zone NOT NULL DEFAULT now(),"
        " PRIMARY KEY (table_name, run, mark))"
    )


def create_staging(names: Names, schema: pa.Schema) -> str:
    """A table of this session that rows are copied to; texts of JSON are texts in it."""
    wanted = names.wanted
    columns = [
        f"{quoted(wanted.key)} text",
        f"{quoted(wanted.chunk)} integer",
        *(f"{quoted(field.name)} {_staged(field)}" for field in schema),
        f"{quoted(wanted.vector)} vector",
    ]
    return f"CREATE TEMPORARY TABLE IF NOT EXISTS {STAGING} ({', '.join(columns)}) ON COMMIT DELETE ROWS"


def staged_types(schema: pa.Schema) -> list[str]:
    """Types of the columns of staging, but for the vector's."""
    return ["text", "integer", *(_staged(field) for field in schema)]


def copy_staging(names: Names, schema: pa.Schema) -> str:
    """The command that rows follow."""
    return f"COPY {STAGING} ({_columns(names, schema)}) FROM STDIN (FORMAT BINARY)"


def delete_further(names: Names) -> str:
    """Vectors of rows that had more than they have now."""
    key, chunk = quoted(names.wanted.key), quoted(names.wanted.chunk)
    return (
        f"DELETE FROM {names.whole} AS old USING (SELECT {key}, max({chunk}) AS last FROM {STAGING}"
        f" GROUP BY {key}) AS new WHERE old.{key} = new.{key} AND old.{chunk} > new.last"
    )


def upsert(names: Names, schema: pa.Schema) -> str:
    """Staging -> the table."""
    wanted = names.wanted
    key, chunk = quoted(wanted.key), quoted(wanted.chunk)
    values = [
        key,
        chunk,
        *(f"{quoted(f.name)}::json" if is_marked(f) else quoted(f.name) for f in schema),
        quoted(wanted.vector),
    ]
    others = [*(quoted(field.name) for field in schema), quoted(wanted.vector)]
    sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
    return (
        f"INSERT INTO {names.whole} ({_columns(names, schema)}) SELECT {', '.join(values)}"
        f" FROM {STAGING} ON CONFLICT ({key}, {chunk}) DO UPDATE SET {sets}"
    )


def create_index(names: Names, metric: Metric) -> str:
    """The index of searches."""
    return f"CREATE INDEX ON {names.whole} USING hnsw ({quoted(names.wanted.vector)} {OPERATORS[metric]})"


def _columns(names: Names, schema: pa.Schema) -> str:
    wanted = names.wanted
    every = [wanted.key, wanted.chunk, *schema.names, wanted.vector]
    return ", ".join(map(quoted, every))


def _staged(field: pa.Field) -> str:
    return "text" if is_marked(field) else sql_type(field)
