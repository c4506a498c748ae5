"""Segments in key order are read from any key on."""

from __future__ import annotations

from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import StorageError
from rowmill.outcomes import key_of, pack
from rowmill.rows import Outcome
from rowmill.storage import LocalStorage
from rowmill.write import segments
from rowmill.write.segments import SegmentRef, check_segment, read_lines_from, read_lines_of

KEYS = st.lists(st.integers(0, 1 << 41), min_size=1, max_size=60, unique=True).map(sorted)


def written(
    folder: Path, keys: list[int], lengths: list[int]
) -> tuple[LocalStorage, SegmentRef]:
    outcomes = [
        Outcome(key, "ok", text="x" * lengths[i % len(lengths)]) for i, key in enumerate(keys)
    ]
    content = pack(outcomes).lines
    storage = LocalStorage(str(folder))
    storage.create("segment", content)
    digest = xxhash.xxh3_64_hexdigest(content)
    return storage, SegmentRef("segment", len(keys), len(content), digest)


@given(
    KEYS,
    st.lists(st.integers(0, 300), min_size=1, max_size=9),
    st.data(),
    st.sampled_from([100, 700, 1 << 15]),
)
def test_lines_are_read_from_a_key_on(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[int],
    lengths: list[int],
    data: st.DataObject,
    probe: int,
) -> None:
    key = data.draw(st.sampled_from(keys) | st.integers(0, 1 << 41))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "PROBE_BYTES", probe)
        storage, ref = written(tmp_path_factory.mktemp("run"), keys, lengths)
        found = [
            key_of(line)
            for lines in read_lines_from(storage, ref, key, piece_bytes=probe)
            for line in lines
        ]

    assert [k for k in keys if k >= key] == found
    assert keys == [key_of(line) for lines in read_lines_of(storage, ref) for line in lines]


def test_a_segment_that_was_changed_is_found(tmp_path: Path) -> None:
    storage, ref = written(tmp_path, [1, 2, 3], [10])
    check_segment(storage, ref)
    content = storage.read("segment").replace(b"xxxxxxxxxx", b"xxxxyxxxxx", 1)
    storage.replace("segment", content)

    with pytest.raises(StorageError, match="not those that were committed"):
        check_segment(storage, ref)
