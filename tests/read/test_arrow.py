"""Arrow files and streams: every row once, types and values as they were, broken memory never looked into."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import BadSource, StorageError
from rowmill.read import pieces
from rowmill.read.arrow import scan, schema, tables
from rowmill.read.table import Table
from rowmill.read.view import ColumnsView
from rowmill.rows import Shard
from tests.read.files import bits_of, found, ordinals_of, touch, write_arrow
from tests.strategies import arrow_tables, bits


def shards_of(path: Path, shard_bytes: int = 1 << 20) -> list[Shard]:
    return scan(found(path), 7, shard_bytes)


def all_of(shard: Shard, **options: Any) -> list[Table]:
    return list(tables(shard, **options))


@given(arrow_tables(max_rows=20), st.integers(1, 8), st.booleans(), st.data())
def test_a_table_comes_back_bit_by_bit(
    batch: pa.RecordBatch, batch_rows: int, stream: bool, choice: st.DataObject
) -> None:
    """However it is cut into batches and asked for, as a file or a stream."""
    codec = choice.draw(st.sampled_from([None, "lz4", "zstd"]))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", choice.draw(st.sampled_from([1, 100, 1 << 20])))
        path = Path(folder) / "t.arrow"
        write_arrow(path, batch, stream=stream, batch_rows=batch_rows, codec=codec)
        shards = shards_of(path, choice.draw(st.sampled_from([1, 500, 1 << 20])))
        first = choice.draw(st.integers(0, batch.num_rows))
        stop = choice.draw(st.one_of(st.none(), st.integers(0, batch.num_rows + 1)))

        assert batch.schema.equals(schema(str(path)), check_metadata=True)
        assert [0, batch.num_rows] == [shards[0].start, shards[-1].stop]
        for shard in shards:
            got = all_of(shard, first=first, stop=stop)
            rows = range(shard.num_lines)[first:stop]
            source = batch.slice(shard.start + first, len(rows))
            assert list(rows) == ordinals_of(got)
            for table in got:
                assert batch.schema.equals(table.batch.schema, check_metadata=True)
                assert table.bad == {}
            if got:
                assert {
                    name: bits(source.column(name)) for name in batch.schema.names
                } == bits_of(got)


def plain(num_rows: int = 100) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "id": list(range(num_rows)),
        "prompt": [f"row {n}" for n in range(num_rows)],
    }
    return pa.RecordBatch.from_pydict(columns | {"place": [{"x": 1.5}] * num_rows})


@pytest.mark.parametrize("stream", [False, True])
def test_only_wanted_columns_are_read(tmp_path: Path, stream: bool) -> None:
    path = write_arrow(tmp_path / "t.arrow", plain(), stream=stream, batch_rows=7)
    shards = shards_of(path, 1)

    got = [
        table for shard in shards for table in all_of(shard, wants={"place", "id"}.__contains__)
    ]

    assert 15 == len(shards)
    assert ["id", "place"] == got[0].batch.schema.names
    assert list(range(100)) == [n for table in got for n in table.batch.column(0).to_pylist()]
    none = [table for shard in shards for table in all_of(shard, wants=lambda name: False)]
    assert 100 == sum(table.batch.num_rows for table in none)


@pytest.mark.parametrize("stream", [False, True])
def test_a_file_of_no_rows_is_one_shard_of_no_rows(tmp_path: Path, stream: bool) -> None:
    path = write_arrow(tmp_path / "t.arrow", plain(0), stream=stream)
    (shard,) = shards_of(path)

    assert (0, 0, 0) == (shard.start, shard.stop, shard.num_lines)
    assert [] == all_of(shard)


def test_one_long_batch_is_read_in_pieces(tmp_path: Path) -> None:
    rows = ["x" * 50] * 30_000 + ["y" * 100_000] * 300
    path = write_arrow(
        tmp_path / "t.arrow", pa.RecordBatch.from_pydict({"p": rows}), stream=False
    )
    (shard,) = shards_of(path)

    got = all_of(shard)

    assert rows == [text for table in got for text in table.batch.column(0).to_pylist()]
    assert max(table.batch.nbytes for table in got) <= 2 * pieces.PIECE_BYTES
    assert max(table.batch.num_rows for table in got) <= pieces.PIECE_ROWS


def test_a_large_dictionary_does_not_make_small_batches(tmp_path: Path) -> None:
    """Only what rows have of it counts."""
    entries = pa.array([f"{n:0100}" for n in range(100_000)])
    places: Any = pa.array(np.arange(20_000, dtype=np.int32))
    batch = pa.RecordBatch.from_pydict({"d": pa.DictionaryArray.from_arrays(places, entries)})
    (shard,) = shards_of(write_arrow(tmp_path / "t", batch, stream=False))

    got = all_of(shard)

    assert len(got) <= 4
    assert [100 <= ColumnsView(table.batch).mean_bytes <= 120 for table in got] == [True] * len(
        got
    )


def test_a_text_that_is_no_utf8_makes_its_row_bad(tmp_path: Path) -> None:
    """Under null, or in a dictionary where no row has it, it does no harm."""
    texts = pa.array([b"ok", b"\xff", b"\xfe", b"ok"])
    hidden = pa.Array.from_buffers(
        pa.string(), 4, [pa.py_buffer(b"\x0b"), *texts.buffers()[1:]], null_count=1
    )
    places = pa.array([0, 0, 2, 0], pa.int32())
    named = pa.DictionaryArray.from_arrays(places, texts.view(pa.string()))
    inside = pa.StructArray.from_arrays([texts.view(pa.string())], ["s"])
    columns = {"hidden": hidden, "named": named, "inside": inside}
    for name, bad in (("hidden", [1]), ("named", [2]), ("inside", [1, 2])):
        path = tmp_path / name
        write_arrow(path, pa.RecordBatch.from_pydict({name: columns[name]}), stream=False)

        (got,) = all_of(shards_of(path)[0])

        assert bad == sorted(got.bad)


def test_values_that_a_type_forbids_are_no_broken_memory(tmp_path: Path) -> None:
    late = pa.array([90_000], pa.int32()).view(pa.time32("s"))
    path = write_arrow(tmp_path / "t", pa.RecordBatch.from_pydict({"t": late}), stream=False)

    (got,) = all_of(shards_of(path)[0])

    assert {} == got.bad
    assert late.equals(got.batch.column(0))


def test_offsets_that_lead_outside_are_an_error(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "t", plain(), stream=False)
    (shard,) = shards_of(path)
    content = path.read_bytes()
    offsets = np.cumsum([0, *(len(f"row {n}") for n in range(100))], dtype=np.int32)
    at = content.index(offsets.tobytes())
    offsets[50] = 1 << 30
    path.write_bytes(content[:at] + offsets.tobytes() + content[at + offsets.nbytes :])

    with pytest.raises(StorageError, match="column `prompt`"):
        all_of(shard)
    assert 100 == len(ordinals_of(all_of(shard, wants="id".__eq__)))


def _cut(path: Path) -> None:
    path.write_bytes(
        write_arrow(path.with_suffix(".whole"), plain(), stream=False).read_bytes()[:-40]
    )


def _cut_stream(path: Path) -> None:
    path.write_bytes(
        write_arrow(path.with_suffix(".whole"), plain(), stream=True).read_bytes()[:1200]
    )


def _twice(path: Path) -> None:
    arrays = [pa.array([1]), pa.array([2])]
    write_arrow(path, pa.RecordBatch.from_arrays(arrays, names=["a", "a"]), stream=False)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.write_bytes(b""), "0 bytes"),
        (lambda path: path.write_bytes(b"ARROW1"), "cannot be read as Arrow IPC"),
        (lambda path: path.write_bytes(b"ARROW1\0\0ARROW1"), "cannot be read as Arrow IPC"),
        (lambda path: path.write_bytes(b"FEA1" + b"\0" * 50), "Feather V1"),
        (
            lambda path: path.write_bytes(b'{"prompt": "x"}\n' * 100),
            "cannot be read as Arrow IPC",
        ),
        (_cut, "cannot be read as Arrow IPC"),
        (_cut_stream, "cannot be read as Arrow IPC"),
        (
            lambda path: write_arrow(path, pa.RecordBatch.from_pydict({}), stream=False),
            "no columns",
        ),
        (_twice, "several columns of one name (`a`)"),
    ],
    ids=[
        "empty",
        "head",
        "magic",
        "feather-1",
        "text",
        "cut",
        "cut-stream",
        "no-columns",
        "twice",
    ],
)
def test_a_file_that_cannot_be_an_input_is_named(
    tmp_path: Path, make: Callable[[Path], object], told: str
) -> None:
    path = tmp_path / "odd.arrow"
    make(path)

    with pytest.raises(BadSource) as caught:
        shards_of(path)

    assert told in str(caught.value)
    assert f"`{path}`: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_changed_or_went_is_an_error(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "t", plain(), stream=False, batch_rows=10)
    (shard,) = shards_of(path)
    reading = tables(shard)
    next(reading)
    touch(path)
    with pytest.raises(StorageError, match="changed while"):
        list(reading)

    path.unlink()
    write_arrow(path, plain(99), stream=False)
    with pytest.raises(StorageError, match="changed while"):
        all_of(shard)

    path.unlink()
    with pytest.raises(StorageError, match="No such file"):
        all_of(shard)
