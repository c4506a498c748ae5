"""Groups of rows become shards that lie end to end."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rowmill.read.listing import Found
from rowmill.read.slices import sliced

groups = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000)), max_size=20)


@given(groups, st.integers(0, 10_000), st.integers(1, 5000))
def test_shards_lie_end_to_end(
    groups: list[tuple[int, int]], size: int, shard_bytes: int
) -> None:
    starts = np.cumsum([0, *(rows for rows, _ in groups)], dtype=np.int64)
    weights = [weight if rows else 0 for rows, weight in groups]

    folders = (("region", "007"), ("dt", None))
    file = Found("/f", "f", size, 0, partitions=folders)

    shards = sliced(file, "parquet", starts, weights, 4, shard_bytes)

    assert {shard.partitions for shard in shards} == {folders}
    assert [0, int(starts[-1])] == [shards[0].start, shards[-1].stop]
    assert all(one.stop == two.start for one, two in pairwise(shards))
    assert {shard.start for shard in shards} <= set(starts.tolist())
    assert list(range(4, 4 + len(shards))) == [shard.index for shard in shards]
    assert all(shard.num_lines == shard.stop - shard.start for shard in shards)
    assert all(shard.num_lines for shard in shards) or len(shards) == 1
    assert sum(shard.num_bytes for shard in shards) <= size
    largest = max((size * weight // (sum(weights) or 1) for weight in weights), default=0)
    assert all(shard.num_bytes <= max(shard_bytes, largest) for shard in shards)
