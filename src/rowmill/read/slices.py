"""Row groups or record batches of a file -> its Shards.

Promises: shards lie end to end from the first row to the last; every file has one at least;
none ends within a group.
Knows nothing of: formats.
Memory: a record a shard.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rowmill.read.listing import Found
from rowmill.rows import Format, Shard


def sliced(
    file: Found,
    format: Format,
    starts: npt.NDArray[np.int64],
    weights: Sequence[int],
    first_index: int,
    shard_bytes: int,
) -> list[Shard]:
    """Groups of rows put together up to `shard_bytes`.

    Args:
        starts: first row of each group, and the number of rows.
        weights: how much of the file each group is, in any measure.
    """
    num_rows = int(starts[-1])
    total = sum(weights) or 1
    shards: list[Shard] = []
    start = held = 0

    def cut(stop: int) -> None:
        shards.append(
            Shard(
                index=first_index + len(shards),
                path=file.path,
                name=file.name,
                start=start,
                stop=stop,
                first_line=start + 1,
                num_lines=stop - start,
                format=format,
                num_bytes=held,
                partitions=file.partitions,
                version=file.version,
            )
        )

    for at, weight in enumerate(weights):
        num_bytes = file.size * weight // total
        stop = int(starts[at])
        if held + num_bytes > shard_bytes and stop > start:
            cut(stop)
            start, held = stop, 0
        held += num_bytes
    if num_rows > start or not shards:
        cut(num_rows)
    return shards
