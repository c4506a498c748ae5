"""Points -> a PostgreSQL table with a `vector` column.

Promises: the rows of a task, and the mark that they are there, are written in one transaction: all or none of them,
and a marked task is passed over.
Knows nothing of: runs beyond their mark.
Memory: what libpq buffers of a COPY.
Source: pgvector 0.8, psycopg 3.3; measured, 100,000 vectors of 384 dimensions: COPY BINARY row by row 87,000 rows/s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rowmill.errors import BadSink, MissingExtra, SinkDown
from rowmill.write.keyed import pg_sql
from rowmill.write.keyed.parameters import check_parameters
from rowmill.write.keyed.wanted import Holds, Table, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.sink_address import SinkAddress
    from rowmill.write.keyed.points import Points

CONNECT_S = 10
PARAMETERS = ("host", "sslmode", "sslrootcert")
_METRIC_OF = {operators: metric for metric, operators in pg_sql.OPERATORS.items()}


def open(address: SinkAddress, wanted: Wanted) -> PgvectorSink:
    """Connect."""
    table = check_parameters(address, table="table", others=PARAMETERS)
    if "psycopg" not in _imported():
        raise MissingExtra(what="psycopg", extra="pgvector")
    return PgvectorSink(address, pg_sql.names_of(table, wanted))


def _imported() -> set[str]:
    try:
        import psycopg  # noqa: F401 - whether it is there
    except ImportError:
        return set()
    return {"psycopg"}


class PgvectorSink:
    """One table in one database."""

    holds = Holds(text_bytes=1 << 28, nul=False)
    """A field of PostgreSQL has up to 1 GB, a COPY row as well."""

    def __init__(self, address: SinkAddress, names: pg_sql.Names) -> None:
        self._address, self._names = address, names
        self._schema: pa.Schema | None = None
        self._connection = self._connect()
        self._has_chunks = False
        self._dimensions = 0

    def _connect(self) -> Any:
        import psycopg

        at = self._address
        parameters = {k: v for k, v in at.parameters.items() if k in PARAMETERS}
        settings = {
            "host": at.host,
            "port": at.port,
            "user": at.user,
            "password": at.secret(),
            "dbname": at.path.strip("/"),
            "connect_timeout": CONNECT_S,
            "application_name": "rowmill",
            **parameters,
        }
        with self._told():
            # Empty ones are libpq's own to fill in: its environment, its password file.
            given = {key: value for key, value in settings.items() if value not in ("", None)}
            return psycopg.connect(autocommit=True, **given)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """The library's errors as ours."""
        import psycopg

        try:
            yield
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise SinkDown(reason=self._address.hidden(error)) from error
        except psycopg.DatabaseError as error:
            raise BadSink(reason=self._sentence(error)) from error

    def _sentence(self, error: Any) -> str:
        # Not the whole of it: PostgreSQL's details may hold a row's text.
        said = getattr(error.diag, "message_primary", None) or type(error).__name__
        return f"`{self._address.text}`: {self._address.hidden(said)}"

    def _rows(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._told():
            found = self._connection.execute(statement, values)
            return list(found.fetchall()) if found.description else []

    def examine(self) -> Table | None:
        if not self._rows("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
            reason = "the server has no extension `vector`; install pgvector there"
            raise self._bad(reason)
        types = self._columns()
        if not types:
            return None
        wanted = self._names.wanted
        for name, type_ in ((wanted.key, "text"), (wanted.chunk, "integer")):
            if types.get(name) != type_:
                found = f"is {types[name]}" if name in types else "is missing"
                reason = (
                    f"its column `{name}` {found}, expected {type_}; name another table and it is made,"
                    " or add the column"
                )
                raise self._bad(reason)
        self._check_unique()
        self._check_metric()
        found = types.get(wanted.vector, "")
        if not found.startswith("vector("):
            said = f"is {found}" if found else "is missing"
            reason = f"its column `{wanted.vector}` {said}, expected `vector(N)`; set `sink.vector`, or name another table"
            raise self._bad(reason)
        return Table(int(found[7:-1]))

    def _bad(self, reason: str) -> BadSink:
        return BadSink(reason=f"`{self._address.text}`: {reason}")

    def _columns(self) -> dict[str, str]:
        rows = self._rows(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self._names.whole,),
        )
        return dict(rows)

    def _check_unique(self) -> None:
        """Repeating is harmless only where key and chunk are unique together."""
        wanted = self._names.wanted
        rows = self._rows(
            "SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_index i JOIN pg_attribute a"
            " ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = to_regclass(%s)"
            " AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
            (self._names.whole,),
        )
        if sorted([wanted.key, wanted.chunk]) not in [row[0] for row in rows]:
            reason = f"it has no unique index on (`{wanted.key}`, `{wanted.chunk}`); add one, or name another table"
            raise self._bad(reason)

    def _check_metric(self) -> None:
        indexed = self._index_metrics()
        wanted = self._names.wanted.metric
        if indexed and wanted not in indexed:
            found = ", ".join(sorted(indexed))
            reason = f'its index is for {found}, the job wants {wanted}; set `sink.metric = "{found}"`, or drop the index'
            raise self._bad(reason)

    def _index_metrics(self) -> set[str]:
        rows = self._rows(
            "SELECT o.opcname FROM pg_index i JOIN pg_opclass o ON o.oid = ANY(i.indclass)"
            " WHERE i.indrelid = to_regclass(%s) AND i.indisvalid",
            (self._names.whole,),
        )
        return {_METRIC_OF[name] for (name,) in rows if name in _METRIC_OF}

    def prepare(self, schema: pa.Schema, dimensions: int) -> None:
        self._rows("CREATE EXTENSION IF NOT EXISTS vector")
        found = self.examine()
        if found is None:
            self._make(schema, dimensions)
        elif found.dimensions != dimensions:
            reason = f"its vectors have {found.dimensions} dimensions, the job's {dimensions}; name another table"
            raise self._bad(reason)
        types = self._columns()
        for field in schema:
            expected = pg_sql.sql_type(field)
            if types.get(field.name, "") not in (expected, f"{expected}b"):
                said = f"is {types[field.name]}" if field.name in types else "is missing"
                reason = (
                    f"its column `{field.name}` {said}, expected {expected}; name in `sink.columns`"
                    " what it is to hold, or name another table"
                )
                raise self._bad(reason)
        self._rows(pg_sql.create_marks(self._names))
        self._schema, self._dimensions = schema, dimensions
        self._ready()

    def _make(self, schema: pa.Schema, dimensions: int) -> None:
        """The table; marks of one that was dropped go."""
        with self._told(), self._connection.transaction():
            self._connection.execute(pg_sql.create_marks(self._names))
            gone = f"DELETE FROM {self._names.marks} WHERE table_name = %s"
            self._connection.execute(gone, (self._names.table,))
            self._connection.execute(pg_sql.create_table(self._names, schema, dimensions))

    def _ready(self) -> None:
        """What each session needs anew."""
        assert self._schema is not None
        from psycopg.types import TypeInfo

        self._rows(pg_sql.create_staging(self._names, self._schema))
        with self._told():
            found = TypeInfo.fetch(self._connection, "vector")
            assert found is not None
            self._vector_oid = found.oid
            self._connection.adapters.register_dumper(PackedVector, _dumper(found.oid))
        chunk = pg_sql.quoted(self._names.wanted.chunk)
        some = self._rows(f"SELECT 1 FROM {self._names.whole} WHERE {chunk} > 0 LIMIT 1")
        self._has_chunks = bool(some)

    def count(self) -> int:
        return int(self._rows(f"SELECT count(*) FROM {self._names.whole}")[0][0])

    def marks(self, run: str) -> set[str]:
        rows = self._rows(
            f"SELECT mark FROM {self._names.marks} WHERE table_name = %s AND run = %s",
            (self._names.table, run),
        )
        return {row[0] for row in rows}

    def forget(self, run: str) -> None:
        gone = f"DELETE FROM {self._names.marks} WHERE table_name = %s AND run = %s"
        self._rows(gone, (self._names.table, run))

    def put(self, run: str, mark: str, parts: Iterator[Points]) -> None:
        with self._told(), self._connection.transaction():
            # First, so that of two who load one task the second waits here, and then has nothing to do.
            is_mine = self._connection.execute(
                f"INSERT INTO {self._names.marks} (table_name, run, mark, vectors) VALUES (%s, %s, %s, 0)"
                " ON CONFLICT DO NOTHING RETURNING 1",
                (self._names.table, run, mark),
            ).fetchall()
            if is_mine:
                vectors = self._put_all(parts)
                self._connection.execute(
                    f"UPDATE {self._names.marks} SET vectors = %s WHERE table_name = %s AND run = %s AND mark = %s",
                    (vectors, self._names.table, run, mark),
                )

    def _put_all(self, parts: Iterator[Points]) -> int:
        """Staging, then the table. Returns: how many vectors."""
        assert self._schema is not None
        number = 0
        with self._connection.cursor() as cursor:
            with cursor.copy(pg_sql.copy_staging(self._names, self._schema)) as copy:
                copy.set_types([*self._types(self._schema), self._vector_oid])
                for points in parts:
                    self._has_chunks |= points.is_chunked
                    number += len(points)
                    for row in _copy_rows(points):
                        copy.write_row(row)
            if self._has_chunks:
                cursor.execute(pg_sql.delete_further(self._names))
            cursor.execute(pg_sql.upsert(self._names, self._schema))
        return number

    def _types(self, schema: pa.Schema) -> list[str]:
        short = {
            "timestamp with time zone": "timestamptz",
            "timestamp without time zone": "timestamp",
            "double precision": "float8",
            "bigint": "int8",
            "integer": "int4",
            "boolean": "bool",
        }
        # The vector's place among the columns is the last one.
        return [short.get(name, name) for name in pg_sql.staged_types(schema)]

    def finish(self, *, builds_index: bool) -> list[str]:
        self._rows(f"ANALYZE {self._names.whole}")
        if not builds_index or self._index_metrics():
            return []
        if self._dimensions > pg_sql.MOST_INDEXED:
            return [
                f"no index was built: HNSW takes up to {pg_sql.MOST_INDEXED:,} dimensions of a `vector`,"
                f" these have {self._dimensions:,}"
            ]
        self._rows(pg_sql.create_index(self._names, self._names.wanted.metric))
        return []

    def close(self) -> None:
        self._connection.close()


class PackedVector(bytes):
    """A vector as PostgreSQL is sent it."""


def _dumper(oid: int) -> Any:
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class VectorDumper(Dumper):
        """Bytes that are packed already."""

        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:
            return bytes(obj)

    VectorDumper.oid = oid
    return VectorDumper


def _copy_rows(points: Points) -> Iterator[tuple[Any, ...]]:
    """A tuple a vector, in the order of the columns."""
    dimensions = points.vectors.shape[1]
    head = np.array([dimensions, 0], ">i2").tobytes()
    packed = points.vectors.astype(">f4").tobytes()
    step = 4 * dimensions
    vectors = [
        PackedVector(head + packed[at : at + step]) for at in range(0, len(packed), step)
    ]
    columns = [column.to_pylist() for column in points.columns.columns]
    return zip(points.keys, points.chunks.tolist(), *columns, vectors, strict=True)
