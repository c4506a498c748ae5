"""Points -> a Qdrant collection: on a server by its URL, or in a folder with the engine in this process.

Promises: a point's id is a UUID made of the row's key and the vector's number, so that putting again changes nothing;
a row's points are there before older ones of it go.
Knows nothing of: runs; it keeps no marks.
Memory: one request.
Source: qdrant-client 1.20, qdrant-edge-py 0.9; with the metric cosine Qdrant keeps vectors at length 1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rowmill.errors import BadSink, MissingExtra, SinkDown
from rowmill.write.keyed.parameters import check_parameters
from rowmill.write.keyed.payload import payloads
from rowmill.write.keyed.protocol import KeyedSink, Unmarked
from rowmill.write.keyed.qdrant_shape import (
    DISTANCES,
    MOST_KEYS,
    check_distance,
    other_dimensions,
)
from rowmill.write.keyed.wanted import Holds, Table, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.sink_address import SinkAddress
    from rowmill.write.keyed.points import Points

TIMEOUT_S = 60
MOST_POINTS, MOST_BYTES = 1_000, 8 * 2**20
"""Of a request; a server takes up to 32 MB."""
INDEXED_FROM = 10_000
"""Qdrant's own default, in kB of a segment."""


def open(address: SinkAddress, wanted: Wanted) -> KeyedSink:
    """Connect, or open the folder."""
    name = check_parameters(address, table="collection", transports=("http", "https", "file"))
    if address.transport == "file":
        from rowmill.write.keyed.qdrant_folder import open_folder

        return open_folder(address, name, wanted)
    try:
        from qdrant_client import QdrantClient
    except ImportError as error:
        raise MissingExtra(what="qdrant-client", extra="qdrant") from error
    port = address.port or (443 if address.transport == "https" else 80)
    client = QdrantClient(
        url=f"{address.transport}://{address.host}:{port}",
        api_key=address.secret() or None,
        prefix=address.path.strip("/") or None,
        timeout=TIMEOUT_S,
        check_compatibility=False,
    )
    return QdrantSink(client, address, name, wanted)


class QdrantSink(Unmarked):
    """One collection of a server."""

    holds = Holds()

    def __init__(self, client: Any, address: SinkAddress, name: str, wanted: Wanted) -> None:
        self._client, self._address, self._name, self._wanted = client, address, name, wanted
        self._has_chunks = False

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """The library's errors as ours."""
        from qdrant_client.http.exceptions import (
            ApiException,
            ResponseHandlingException,
            UnexpectedResponse,
        )

        try:
            yield
        except UnexpectedResponse as error:
            status = error.status_code or 0
            words = f"it answered {status} {error.reason_phrase}"
            if status in (408, 425, 429) or status >= 500:
                raise SinkDown(reason=words) from error
            raise self._bad(words) from error
        except (ResponseHandlingException, ApiException, OSError) as error:
            raise SinkDown(reason=self._address.hidden(error)) from error

    def _bad(self, reason: str) -> BadSink:
        return BadSink(reason=f"`{self._address.text}`: {reason}")

    def examine(self) -> Table | None:
        with self._told():
            if not self._client.collection_exists(self._name):
                return None
            vectors = self._client.get_collection(self._name).config.params.vectors
        named = vectors if isinstance(vectors, dict) else {"": vectors}
        found = named.get(self._wanted.vector)
        if found is None:
            known = ", ".join(f"`{name}`" if name else "one without a name" for name in named)
            reason = f"its vectors are {known}, expected `{self._wanted.vector}`; set `sink.vector`, or name another collection"
            raise self._bad(reason)
        check_distance(
            self._address, str(getattr(found.distance, "value", found.distance)), self._wanted
        )
        return Table(int(found.size))

    def prepare(self, schema: pa.Schema, dimensions: int) -> None:
        from qdrant_client import models

        found = self.examine()
        if found is None:
            with self._told():
                self._create(dimensions)
        elif found.dimensions != dimensions:
            raise self._bad(other_dimensions(found.dimensions, dimensions))
        older = models.Filter(must=[self._from_chunk(1)])
        with self._told():
            self._has_chunks = bool(self._client.count(self._name, count_filter=older).count)

    def _create(self, dimensions: int) -> None:
        from qdrant_client import models

        distance = models.Distance(DISTANCES[self._wanted.metric])
        size = models.VectorParams(size=dimensions, distance=distance)
        self._client.create_collection(
            self._name,
            vectors_config={self._wanted.vector: size},
            # The index is built once, when all is there.
            optimizers_config=models.OptimizersConfigDiff(indexing_threshold=0),
        )
        self._client.create_payload_index(
            self._name, self._wanted.key, field_schema=models.PayloadSchemaType.KEYWORD
        )

    def count(self) -> int:
        with self._told():
            return int(self._client.count(self._name, exact=True).count)

    def put(self, run: str, mark: str, parts: Iterator[Points]) -> None:
        for part in parts:
            self._has_chunks |= part.is_chunked
            for points in part.pieces(most_rows=MOST_POINTS, most_bytes=MOST_BYTES):
                self._put(points)

    def _put(self, points: Points) -> None:
        from qdrant_client import models

        batch = models.Batch(
            ids=points.point_ids(),
            vectors={self._wanted.vector: points.vectors.tolist()},
            payloads=payloads(points, self._wanted),
        )
        with self._told():
            self._client.upsert(self._name, batch, wait=True)
            if self._has_chunks:
                for number, keys in points.keys_by_count().items():
                    self._delete_further(number, keys)

    def _delete_further(self, number: int, keys: list[str]) -> None:
        from qdrant_client import models

        for start in range(0, len(keys), MOST_KEYS):
            some = models.MatchAny(any=keys[start : start + MOST_KEYS])
            key = models.FieldCondition(key=self._wanted.key, match=some)
            further = models.Filter(must=[key, self._from_chunk(number)])
            selector = models.FilterSelector(filter=further)
            self._client.delete(self._name, selector, wait=True)

    def _from_chunk(self, number: int) -> Any:
        from qdrant_client import models

        return models.FieldCondition(
            key=self._wanted.chunk, range=models.Range(gte=float(number))
        )

    def finish(self, *, builds_index: bool) -> list[str]:
        from qdrant_client import models

        with self._told():
            now = self._client.get_collection(self._name).config.optimizer_config
            if builds_index and getattr(now, "indexing_threshold", None) == 0:
                on = models.OptimizersConfigDiff(indexing_threshold=INDEXED_FROM)
                self._client.update_collection(self._name, optimizers_config=on)
        return []

    def close(self) -> None:
        self._client.close()
