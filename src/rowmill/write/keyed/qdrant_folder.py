"""Points -> a folder of Qdrant's, its engine inside this process.

Promises: as qdrant.py; what was put is on the disk when `put` returns.
Knows nothing of: servers.
Memory: what the engine holds of the collection.
Source: qdrant-edge-py 0.9; measured, 50,000 vectors: 1.1 s.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowmill.errors import BadSink, MissingExtra
from rowmill.write.keyed.parameters import folder_of
from rowmill.write.keyed.payload import payloads
from rowmill.write.keyed.protocol import Unmarked
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

CONFIG = "edge_config.json"
MOST_POINTS, MOST_BYTES = 5_000, 64 * 2**20


def open_folder(address: SinkAddress, name: str, wanted: Wanted) -> FolderSink:
    """Open `FOLDER/NAME`."""
    try:
        import qdrant_edge  # noqa: F401 - whether it is there
    except ImportError as error:
        raise MissingExtra(what="qdrant-edge-py", extra="qdrant") from error
    return FolderSink(address, Path(folder_of(address)) / name, wanted)


class FolderSink(Unmarked):
    """One collection in a folder."""

    holds = Holds()

    def __init__(self, address: SinkAddress, path: Path, wanted: Wanted) -> None:
        self._address, self._path, self._wanted = address, path, wanted
        self._has_chunks = False
        self._open: Any = None

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """The engine's errors as ours: it raises plain ones."""
        try:
            yield
        except (RuntimeError, ValueError, OSError) as error:
            reason = f"`{self._address.text}`: {self._address.hidden(error)}"
            raise BadSink(reason=reason) from error

    @property
    def _shard(self) -> Any:
        if self._open is None:
            from qdrant_edge import EdgeShard

            with self._told():
                self._open = EdgeShard.load(str(self._path))
        return self._open

    def examine(self) -> Table | None:
        if not (self._path.is_dir() and any(self._path.iterdir())):
            return None
        found = self._vectors().get(self._wanted.vector)
        if found is None:
            reason = (
                f"`{self._address.text}`: it has no vectors `{self._wanted.vector}`;"
                " set `sink.vector`, or name another collection"
            )
            raise BadSink(reason=reason)
        check_distance(self._address, found["distance"], self._wanted)
        return Table(int(found["size"]))

    def _vectors(self) -> dict[str, Any]:
        """What the engine wrote down when the folder was made: it has no call that tells."""
        try:
            found = json.loads((self._path / CONFIG).read_bytes())["vectors"]
        except (OSError, ValueError, KeyError) as error:
            reason = f"`{self._address.text}`: the folder is no collection of Qdrant's ({type(error).__name__})"
            raise BadSink(reason=reason) from error
        return dict(found)

    def prepare(self, schema: pa.Schema, dimensions: int) -> None:
        import qdrant_edge as q

        found = self.examine()
        if found is None:
            distance = getattr(q.Distance, DISTANCES[self._wanted.metric])
            size = q.EdgeVectorParams(size=dimensions, distance=distance)
            config = q.EdgeConfig(vectors={self._wanted.vector: size})
            with self._told():
                self._path.mkdir(parents=True, exist_ok=True)
                self._open = q.EdgeShard.create(str(self._path), config)
                keyword = q.PayloadSchemaType.Keyword
                self._shard.update(
                    q.UpdateOperation.create_field_index(self._wanted.key, keyword)
                )
        elif found.dimensions != dimensions:
            reason = f"`{self._address.text}`: {other_dimensions(found.dimensions, dimensions)}"
            raise BadSink(reason=reason)
        older = q.Filter(must=[self._from_chunk(1)])
        with self._told():
            self._has_chunks = bool(self._shard.count(q.CountRequest(filter=older)))

    def count(self) -> int:
        from qdrant_edge import CountRequest

        with self._told():
            return int(self._shard.count(CountRequest(exact=True)))

    def put(self, run: str, mark: str, parts: Iterator[Points]) -> None:
        for part in parts:
            self._has_chunks |= part.is_chunked
            for points in part.pieces(most_rows=MOST_POINTS, most_bytes=MOST_BYTES):
                self._put(points)
        with self._told():
            self._shard.flush()

    def _put(self, points: Points) -> None:
        import qdrant_edge as q

        name = self._wanted.vector
        made = [
            q.Point(id_, {name: vector}, payload)
            for id_, vector, payload in zip(
                points.point_ids(),
                points.vectors.tolist(),
                payloads(points, self._wanted),
                strict=True,
            )
        ]
        with self._told():
            self._shard.update(q.UpdateOperation.upsert_points(made))
            if self._has_chunks:
                for number, keys in points.keys_by_count().items():
                    self._delete_further(number, keys)

    def _delete_further(self, number: int, keys: list[str]) -> None:
        import qdrant_edge as q

        for start in range(0, len(keys), MOST_KEYS):
            some = q.MatchAny(keys[start : start + MOST_KEYS])
            key = q.FieldCondition(key=self._wanted.key, match=some)
            further = q.Filter(must=[key, self._from_chunk(number)])
            self._shard.update(q.UpdateOperation.delete_points_by_filter(further))

    def _from_chunk(self, number: int) -> Any:
        import qdrant_edge as q

        return q.FieldCondition(key=self._wanted.chunk, range=q.RangeFloat(gte=float(number)))

    def finish(self, *, builds_index: bool) -> list[str]:
        if builds_index:
            with self._told():
                self._shard.optimize()
        return []

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
