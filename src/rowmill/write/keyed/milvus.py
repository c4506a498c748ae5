"""Points -> a Milvus collection.

Promises: a point's primary key is a UUID made of the row's key and the vector's number, so that putting again changes
nothing; a row's points are there before older ones of it go.
Knows nothing of: runs; it keeps no marks.
Memory: one request.
Source: pymilvus 3.0, milvus-lite 3.2; limits of https://milvus.io/docs/limitations.md: 64 MB a request, 65,536 bytes
of dynamic fields a row, 65,535 of a text.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rowmill.errors import BadSink, MissingExtra, SinkDown
from rowmill.write.keyed.parameters import check_parameters
from rowmill.write.keyed.payload import payloads
from rowmill.write.keyed.points import KEY_BYTES
from rowmill.write.keyed.protocol import Unmarked
from rowmill.write.keyed.wanted import Holds, Metric, Table, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.sink_address import SinkAddress
    from rowmill.write.keyed.points import Points

METRICS: dict[Metric, str] = {"cosine": "COSINE", "l2": "L2", "dot": "IP"}
POINT = "rowmill_point"
"""Primary key of a collection that we make."""
UUID_CHARS = 36
MOST_POINTS, MOST_BYTES = 2_000, 16 * 2**20
MOST_KEYS = 500
INDEXED_FROM = 50_000
TIMEOUT_S = 60


def open(address: SinkAddress, wanted: Wanted) -> MilvusSink:
    """Connect."""
    name = check_parameters(address, table="collection", transports=("http", "https"))
    try:
        from pymilvus import MilvusClient
    except ImportError as error:
        raise MissingExtra(what="pymilvus", extra="milvus") from error
    sink = MilvusSink(address, name, wanted)
    with sink.told():
        sink.client = MilvusClient(
            uri=f"{address.transport}://{address.host}:{address.port or 19530}",
            user=address.user,
            password=address.secret() if address.user else "",
            token="" if address.user else address.secret(),
            db_name=address.path.strip("/"),
            timeout=TIMEOUT_S,
        )
    return sink


class MilvusSink(Unmarked):
    """One collection of a server."""

    holds = Holds(text_bytes=65_535, row_bytes=65_000)
    client: Any

    def __init__(self, address: SinkAddress, name: str, wanted: Wanted) -> None:
        self._address, self._name, self._wanted = address, name, wanted
        self._has_chunks = False

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """The library's errors as ours."""
        import grpc
        from pymilvus.exceptions import MilvusException, MilvusUnavailableException

        try:
            yield
        except (grpc.RpcError, MilvusUnavailableException, OSError) as error:
            raise SinkDown(reason=self._address.hidden(error)) from error
        except MilvusException as error:
            words = self._address.hidden(error.message)
            # 2: the server cannot be reached; 1, 5, 8: it is not ready, has no room, is asked too often.
            if error.code in (1, 2, 5, 8):
                raise SinkDown(reason=words) from error
            raise self._bad(words) from error

    def _bad(self, reason: str) -> BadSink:
        return BadSink(reason=f"`{self._address.text}`: {reason}")

    def examine(self) -> Table | None:
        with self.told():
            if not self.client.has_collection(self._name):
                return None
            fields = self.client.describe_collection(self._name)["fields"]
            by_name = {field["name"]: field for field in fields}
        wanted = self._wanted
        for name in (POINT, wanted.key, wanted.chunk, wanted.vector):
            if name not in by_name:
                reason = f"it has no field `{name}`; name another collection and it is made"
                raise self._bad(reason)
        self._check_metric()
        return Table(int(by_name[wanted.vector]["params"]["dim"]))

    def _check_metric(self) -> None:
        names = {name: metric for metric, name in METRICS.items()}
        for found in self._metrics():
            if found != METRICS[self._wanted.metric]:
                reason = (
                    f"its index is for {names.get(found, found)}, the job wants {self._wanted.metric};"
                    " set `sink.metric`, or name another collection"
                )
                raise self._bad(reason)

    def _metrics(self) -> list[str]:
        with self.told():
            names = self.client.list_indexes(self._name, field_name=self._wanted.vector)
            found = [self.client.describe_index(self._name, name) for name in names]
        return [one["metric_type"] for one in found if one and "metric_type" in one]

    def prepare(self, schema: pa.Schema, dimensions: int) -> None:
        found = self.examine()
        if found is None:
            with self.told():
                self._create(dimensions)
        elif found.dimensions != dimensions:
            reason = f"its vectors have {found.dimensions} dimensions, the job's {dimensions}; name another collection"
            raise self._bad(reason)
        with self.told():
            self.client.load_collection(self._name)
        self._has_chunks = bool(self._number(f"{self._wanted.chunk} > 0"))

    def _create(self, dimensions: int) -> None:
        from pymilvus import DataType

        wanted = self._wanted
        made = self.client.create_schema(auto_id=False, enable_dynamic_field=True)
        made.add_field(POINT, DataType.VARCHAR, is_primary=True, max_length=UUID_CHARS)
        made.add_field(wanted.key, DataType.VARCHAR, max_length=KEY_BYTES)
        made.add_field(wanted.chunk, DataType.INT64)
        made.add_field(wanted.vector, DataType.FLOAT_VECTOR, dim=dimensions)
        # Without an index a collection cannot be loaded, and what is not loaded cannot be asked for.
        index = self.client.prepare_index_params()
        index.add_index(
            field_name=wanted.vector, index_type="FLAT", metric_type=METRICS[wanted.metric]
        )
        self.client.create_collection(
            self._name, schema=made, index_params=index, consistency_level="Strong"
        )

    def _number(self, condition: str) -> int:
        with self.told():
            rows = self.client.query(self._name, filter=condition, output_fields=["count(*)"])
        return int(rows[0]["count(*)"])

    def count(self) -> int:
        return self._number("")

    def put(self, run: str, mark: str, parts: Iterator[Points]) -> None:
        for part in parts:
            self._has_chunks |= part.is_chunked
            for points in part.pieces(most_rows=MOST_POINTS, most_bytes=MOST_BYTES):
                with self.told():
                    self.client.upsert(self._name, self._records(points))
                    if self._has_chunks:
                        for number, keys in points.keys_by_count().items():
                            self._delete_further(number, keys)

    def _records(self, points: Points) -> list[dict[str, Any]]:
        wanted = self._wanted
        return [
            {
                **{name: value for name, value in payload.items() if value is not None},
                POINT: id_,
                wanted.vector: vector,
            }
            for id_, payload, vector in zip(
                points.point_ids(), payloads(points, wanted), list(points.vectors), strict=True
            )
        ]

    def _delete_further(self, number: int, keys: list[str]) -> None:
        for start in range(0, len(keys), MOST_KEYS):
            some = json.dumps(keys[start : start + MOST_KEYS])
            condition = f"{self._wanted.chunk} >= {number} and {self._wanted.key} in {some}"
            self.client.delete(self._name, filter=condition)

    def finish(self, *, builds_index: bool) -> list[str]:
        """The index that the server thinks best, in place of none, where there is enough to search."""
        with self.told():
            # Once, not after each task: a server allows one in ten seconds, and what it took is in its log anyway.
            self.client.flush(self._name)
        if not builds_index or self.count() < INDEXED_FROM:
            return []
        with self.told():
            wanted = self._wanted
            name = self.client.list_indexes(self._name, field_name=wanted.vector)[0]
            if self.client.describe_index(self._name, name)["index_type"] != "FLAT":
                return []
            index = self.client.prepare_index_params()
            index.add_index(
                field_name=wanted.vector,
                index_type="AUTOINDEX",
                metric_type=METRICS[wanted.metric],
            )
            self.client.release_collection(self._name)
            self.client.drop_index(self._name, name)
            self.client.create_index(self._name, index)
            self.client.load_collection(self._name)
        return []

    def close(self) -> None:
        self.client.close()
