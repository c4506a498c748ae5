"""Points -> a LanceDB table.

Promises: a vector is merged in under the row's key and its number, so that putting again changes nothing;
tables are compacted at the end.
Knows nothing of: runs; it keeps no marks.
Memory: one task.
Source: lancedb 0.40: each write makes a version and a fragment, and reading gets slow with many of them.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rowmill.errors import BadSink, MissingExtra, SinkDown
from rowmill.write.keyed.parameters import check_parameters, folder_of
from rowmill.write.keyed.protocol import Unmarked
from rowmill.write.keyed.wanted import Holds, Metric, Table, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.sink_address import SinkAddress
    from rowmill.write.keyed.points import Points

MOST_KEYS = 1_000
COMPACT_EACH = 20
"""Tasks after which a table is compacted while it is loaded: each makes a fragment, and a merge looks at all."""
INDEXED_FROM = 100_000
"""Vectors from which an approximate index pays: below, all are looked at in a few ms."""
KEPT = datetime.timedelta(minutes=10)
"""Versions of the table that readers may still be at."""
NAME = re.compile(r"[A-Za-z0-9_.-]+")
"""What the library takes for the name of a table; it says so only when the table is made."""
METRICS: dict[Metric, str] = {"cosine": "cosine", "l2": "l2", "dot": "dot"}


def open(address: SinkAddress, wanted: Wanted) -> LanceSink:
    """Open the database; the folder is made with the first table."""
    name = check_parameters(address, table="table", transports=("", "s3", "gs", "az"))
    if not NAME.fullmatch(name) or name in (".", ".."):
        reason = (
            f"a table cannot be called `{name}`: letters, digits, `_`, `-` and `.` make a name"
        )
        raise BadSink(reason=f"`{address.text}`: {reason}")
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtra(what="lancedb", extra="lancedb") from error
    place = (
        f"{address.transport}://{address.host}{address.path}"
        if address.transport
        else folder_of(address)
    )
    sink = LanceSink(address, name, wanted)
    with sink.told():
        sink.database = lancedb.connect(place)
    return sink


class LanceSink(Unmarked):
    """One table of one database."""

    holds = Holds()
    database: Any

    def __init__(self, address: SinkAddress, name: str, wanted: Wanted) -> None:
        self._address, self._name, self._wanted = address, name, wanted
        self._has_chunks = False
        self._num_puts = 0
        self._table: Any = None

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """The library's errors as ours: it raises plain ones, and tells causes in words only."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            # A store of objects may come back, and a conflict of writers passes; a table of another shape was seen before.
            raise SinkDown(reason=self._address.hidden(error)) from error

    def _bad(self, reason: str) -> BadSink:
        return BadSink(reason=f"`{self._address.text}`: {reason}")

    def _opened(self) -> Any:
        with self.told():
            if self._table is None and self._name in self._names():
                self._table = self.database.open_table(self._name)
        return self._table

    def _names(self) -> set[str]:
        found: set[str] = set()
        token = None
        while True:
            page = self.database.list_tables(page_token=token)
            found |= set(page.tables)
            token = page.page_token
            if not token:
                return found

    def examine(self) -> Table | None:
        table = self._opened()
        if table is None:
            return None
        import pyarrow as pa

        schema, wanted = table.schema, self._wanted
        own = {
            wanted.key: pa.types.is_string,
            wanted.chunk: pa.types.is_integer,
            wanted.vector: pa.types.is_fixed_size_list,
        }
        for name, is_right in own.items():
            if name not in schema.names or not is_right(schema.field(name).type):
                said = f"is {schema.field(name).type}" if name in schema.names else "is missing"
                reason = f"its column `{name}` {said}; name another table and it is made"
                raise self._bad(reason)
        self._check_metric(table)
        return Table(int(schema.field(wanted.vector).type.list_size))

    def _check_metric(self, table: Any) -> None:
        for found in self._metrics(table):
            if found != METRICS[self._wanted.metric]:
                reason = (
                    f"its index is for {found}, the job wants {self._wanted.metric};"
                    f' set `sink.metric = "{found}"`, or drop the index'
                )
                raise self._bad(reason)

    def _metrics(self, table: Any) -> list[str]:
        with self.told():
            stats = [
                table.index_stats(index.name)
                for index in table.list_indices()
                if self._wanted.vector in index.columns
            ]
        return [str(one.distance_type).lower() for one in stats if one and one.distance_type]

    def prepare(self, schema: pa.Schema, dimensions: int) -> None:

        found = self.examine()
        whole = self._whole(schema, dimensions)
        if found is None:
            with self.told():
                self._table = self.database.create_table(
                    self._name, schema=whole, exist_ok=True
                )
        elif found.dimensions != dimensions:
            reason = f"its vectors have {found.dimensions} dimensions, the job's {dimensions}; name another table"
            raise self._bad(reason)
        there: pa.Schema = self._opened().schema
        for field in schema:
            if field.name not in there.names or there.field(field.name).type != field.type:
                is_there = field.name in there.names
                said = f"is {there.field(field.name).type}" if is_there else "is missing"
                reason = (
                    f"its column `{field.name}` {said}, expected {field.type}; name in `sink.columns`"
                    " what it is to hold, or name another table"
                )
                raise self._bad(reason)
        with self.told():
            self._has_chunks = bool(self._table.count_rows(f"{self._quoted_chunk} > 0"))

    def _whole(self, schema: pa.Schema, dimensions: int) -> pa.Schema:
        import pyarrow as pa

        wanted = self._wanted
        return pa.schema(
            [
                pa.field(wanted.key, pa.string(), nullable=False),
                pa.field(wanted.chunk, pa.int32(), nullable=False),
                *schema,
                pa.field(wanted.vector, pa.list_(pa.float32(), dimensions), nullable=False),
            ]
        )

    @property
    def _quoted_chunk(self) -> str:
        return f"`{self._wanted.chunk}`"

    def count(self) -> int:
        table = self._opened()
        with self.told():
            return int(table.count_rows()) if table is not None else 0

    def put(self, run: str, mark: str, parts: Iterator[Points]) -> None:
        """One version of the table for the whole task."""
        import pyarrow as pa

        kept = [points for points in parts if len(points)]
        if not kept:
            return
        wanted = self._wanted
        rows = pa.Table.from_batches([self._batch(points) for points in kept])
        self._has_chunks |= any(points.is_chunked for points in kept)
        with self.told():
            merge = self._table.merge_insert([wanted.key, wanted.chunk])
            merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)
            if self._has_chunks:
                for points in kept:
                    for number, keys in points.keys_by_count().items():
                        self._delete_further(number, keys)
            self._num_puts += 1
            if self._num_puts % COMPACT_EACH == 0:
                self._table.optimize()

    def _batch(self, points: Points) -> pa.RecordBatch:
        import pyarrow as pa

        dimensions = points.vectors.shape[1]
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array(points.vectors.ravel()), dimensions
        )
        arrays = [
            pa.array(points.keys, pa.string()),
            pa.array(points.chunks, pa.int32()),
            *points.columns.columns,
            vectors,
        ]
        whole = self._whole(points.columns.schema, dimensions)
        return pa.RecordBatch.from_arrays(arrays, schema=whole)

    def _delete_further(self, number: int, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), MOST_KEYS):
            some = ", ".join(
                "'" + key.replace("'", "''") + "'" for key in keys[start : start + MOST_KEYS]
            )
            condition = f"{self._quoted_chunk} >= {number} AND `{self._wanted.key}` IN ({some})"
            self._table.delete(condition)

    def finish(self, *, builds_index: bool) -> list[str]:
        """Compact; build the index where it pays."""
        with self.told():
            self._table.optimize(cleanup_older_than=KEPT)
            number = self._table.count_rows()
            if builds_index and number >= INDEXED_FROM and not self._metrics(self._table):
                self._table.create_index(
                    metric=METRICS[self._wanted.metric],
                    vector_column_name=self._wanted.vector,
                    index_type="IVF_HNSW_SQ",
                )
        return []

    def close(self) -> None:
        self._table = None
