"""Parquet: every row once, types and values as they were; files that cannot be read are named."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from rowmill.errors import BadSource, StorageError
from rowmill.read import parquet as module
from rowmill.read import pieces
from rowmill.read.parquet import scan, schema, tables
from rowmill.read.table import Table
from rowmill.rows import Shard
from tests.read.files import bits_of, found, ordinals_of, touch, write_parquet
from tests.strategies import arrow_tables, bits


def shards_of(path: Path, shard_bytes: int = 1 << 20) -> list[Shard]:
    return scan(found(path), 7, shard_bytes)


def all_of(shard: Shard, **options: Any) -> list[Table]:
    return list(tables(shard, **options))


@given(
    arrow_tables(of_parquet=True, max_rows=20), st.integers(1, 8), st.integers(1, 5), st.data()
)
def test_a_table_comes_back_bit_by_bit(
    batch: pa.RecordBatch, group_rows: int, probe_rows: int, choice: st.DataObject
) -> None:
    """However it is cut into row groups and asked for."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PROBE_ROWS", probe_rows)
        patch.setattr(module, "READ_BYTES", choice.draw(st.sampled_from([1, 100, 1 << 20])))
        patch.setattr(pieces, "PIECE_BYTES", choice.draw(st.sampled_from([1, 100, 1 << 20])))
        path = write_parquet(Path(folder) / "t.parquet", batch, group_rows=group_rows)
        shards = shards_of(path, choice.draw(st.sampled_from([1, 500, 1 << 20])))
        first = choice.draw(st.integers(0, batch.num_rows))
        stop = choice.draw(st.one_of(st.none(), st.integers(0, batch.num_rows + 1)))

        assert [0, batch.num_rows] == [shards[0].start, shards[-1].stop]
        assert all(one.stop == two.start for one, two in pairwise(shards))
        for shard in shards:
            got = all_of(shard, first=first, stop=stop)
            rows = range(shard.num_lines)[first:stop]
            source = batch.slice(shard.start + first, len(rows))
            assert list(rows) == ordinals_of(got)
            for table in got:
                assert table.batch.schema.equals(_noted(batch, path), check_metadata=True)
                assert table.bad == {}
                table.batch.validate(full=True)
            if got:
                assert {
                    name: bits(source.column(name)) for name in batch.schema.names
                } == bits_of(got)


def _noted(batch: pa.RecordBatch, path: Path) -> pa.Schema:
    """The schema that was written, as far as Parquet keeps it: `read_table` is the judge of that."""
    back = parquet.read_table(path, partitioning=None).schema
    assert back.names == batch.schema.names
    assert back.types == batch.schema.types
    assert [f.nullable for f in back] == [f.nullable for f in batch.schema]
    return back


def plain(num_rows: int = 100) -> pa.Table:
    return pa.table(
        {
            "id": list(range(num_rows)),
            "prompt": [f"row {n}" for n in range(num_rows)],
            "a.b": [1.5] * num_rows,
            "a": pa.array([{"b": n, "c": None} for n in range(num_rows)]),
        }
    )


def test_only_wanted_columns_are_read_whatever_their_names(tmp_path: Path) -> None:
    """In pyarrow's words `a` is a path that means `a.b` as well."""
    (shard,) = shards_of(write_parquet(tmp_path / "t.parquet", plain(50)))

    for names in (
        ["a"],
        ["a.b"],
        ["a", "a.b"],
        ["prompt", "a.b"],
        ["id", "prompt", "a.b", "a"],
    ):
        found_columns = all_of(shard, wants=names.__contains__)[0].batch
        whole = plain(50).combine_chunks().to_batches()[0]
        assert [
            name for name in whole.schema.names if name in names
        ] == found_columns.schema.names
        for name in names:
            assert whole.column(name).equals(found_columns.column(name))


def test_rows_are_counted_where_no_column_is_wanted(tmp_path: Path) -> None:
    (shard,) = shards_of(write_parquet(tmp_path / "t.parquet", plain(20_000)))

    got = all_of(shard, first=5, stop=19_000, wants=lambda name: False)

    assert list(range(5, 19_000)) == ordinals_of(got)
    assert sum(table.batch.num_rows for table in got) == 18_995


def test_folders_add_columns_that_the_file_has_not(tmp_path: Path) -> None:
    (shard,) = shards_of(write_parquet(tmp_path / "t.parquet", plain(3)))
    partitions = (("region", "007"), ("day", None), ("id", "of the folder"))
    placed = Shard(
        **{name: getattr(shard, name) for name in shard.__struct_fields__}
        | {"partitions": partitions}
    )

    batch = all_of(placed)[0].batch

    assert ["id", "prompt", "a.b", "a", "region", "day"] == batch.schema.names
    assert ["007"] * 3 == batch.column("region").to_pylist()
    assert [None] * 3 == batch.column("day").to_pylist()
    assert [0, 1, 2] == batch.column("id").to_pylist()
    assert pa.string() == batch.schema.field("day").type
    only = all_of(placed, wants="region".__eq__)[0].batch
    assert {"region": ["007"] * 3} == only.to_pydict()


def test_small_row_groups_share_a_shard_and_large_ones_do_not(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", plain(), group_rows=10)
    size = path.stat().st_size

    shards = shards_of(path, size // 3)

    assert 3 <= len(shards) <= 5
    assert all(shard.start % 10 == 0 for shard in shards)
    assert [7 + at for at in range(len(shards))] == [shard.index for shard in shards]
    assert [shard.start + 1 for shard in shards] == [shard.first_line for shard in shards]
    assert [shard.stop - shard.start for shard in shards] == [
        shard.num_lines for shard in shards
    ]
    assert size * 0.9 < sum(shard.weight for shard in shards) <= size
    assert 1 == len(shards_of(write_parquet(tmp_path / "one.parquet", plain()), 1))


def test_a_file_of_no_rows_is_one_shard_of_no_rows(tmp_path: Path) -> None:
    for name, groups in (("none", 0), ("empty", 2)):
        with parquet.ParquetWriter(tmp_path / name, plain(1).schema) as writer:
            for _ in range(groups):
                writer.write_table(plain(1).slice(1))
        (shard,) = shards_of(tmp_path / name)

        assert (0, 0, 1, 0) == (shard.start, shard.stop, shard.first_line, shard.num_lines)
        assert [] == all_of(shard)
        assert plain(1).schema == schema(str(tmp_path / name))


def test_batches_are_small_whatever_rows_there_are(tmp_path: Path) -> None:
    """Long texts that a dictionary writes once are long in memory all the same."""
    long, short = "x" * 100_000, "y"
    rows = [short] * 1000 + [long] * 500 + [short] * 3000
    (shard,) = shards_of(write_parquet(tmp_path / "t.parquet", pa.table({"prompt": rows})))

    got = all_of(shard)

    assert rows == [text for table in got for text in table.batch.column(0).to_pylist()]
    assert max(table.batch.nbytes for table in got) <= 2 * pieces.PIECE_BYTES
    assert max(table.batch.num_rows for table in got) <= pieces.PIECE_ROWS
    assert len(got) < 250


def test_texts_of_an_arrow_dictionary_count_in_each_row(tmp_path: Path) -> None:
    column = (
        pa.array(["x" * 100_000, *"abcdefgh"]).take(pa.array([0] * 500)).dictionary_encode()
    )
    (shard,) = shards_of(write_parquet(tmp_path / "t.parquet", pa.table({"prompt": column})))

    assert max(table.batch.num_rows for table in all_of(shard)) <= 100


def test_a_text_that_is_no_utf8_makes_its_row_bad(tmp_path: Path) -> None:
    texts = pa.array([b"ok", b"\xff", None, b"\xc3\xa9"]).view(pa.string())
    table = pa.table({"prompt": texts, "n": [1, 2, 3, 4]})
    (shard,) = shards_of(write_parquet(tmp_path / "t.parquet", table))

    (got,) = all_of(shard)

    assert list(got.bad) == [1]
    assert "not valid UTF-8 in column `prompt`" in got.bad[1]
    assert [b"ok", b"\xff", None, b"\xc3\xa9"] == got.batch.column(0).view(
        pa.binary()
    ).to_pylist()
    assert {} == all_of(shard, wants="n".__eq__)[0].bad


WHOLE = "{folder}/whole.parquet"


def _cut(path: Path) -> None:
    path.write_bytes(write_parquet(path.with_suffix(".whole"), plain()).read_bytes()[:300])


def _encrypted(path: Path) -> None:
    path.write_bytes(b"PARE" + b"\0" * 100 + b"\x20\0\0\0PARE")


def _twice(path: Path) -> None:
    arrays = [pa.array([1]), pa.array([2])]
    write_parquet(path, pa.Table.from_arrays(arrays, names=["a\n", "a\n"]))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.write_bytes(b""), "0 bytes"),
        (lambda path: path.write_bytes(b"PAR1PAR1"), "cannot be read as Parquet"),
        (lambda path: path.write_bytes(b"PAR1"), "cannot be read as Parquet"),
        (
            lambda path: path.write_bytes(b'{"prompt": "x"}\n' * 100),
            "cannot be read as Parquet",
        ),
        (_cut, "cannot be read as Parquet"),
        (_encrypted, "cannot be read as Parquet"),
        (lambda path: write_parquet(path, pa.table({})), "has no columns"),
        (_twice, r"several columns of one name (`a\n`)"),
    ],
    ids=["empty", "magic", "head", "text", "cut", "encrypted", "no-columns", "twice"],
)
def test_a_file_that_cannot_be_an_input_is_named(
    tmp_path: Path, make: Callable[[Path], object], told: str
) -> None:
    path = tmp_path / "odd.parquet"
    make(path)

    with pytest.raises(BadSource) as caught:
        shards_of(path)

    assert told in str(caught.value)
    assert f"`{path}`: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSource, match=r"none\.parquet"):
        schema(str(tmp_path / "none.parquet"))


def test_a_file_that_changed_or_went_is_an_error(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", plain(50_000))
    (shard,) = shards_of(path)
    reading = tables(shard)
    next(reading)
    touch(path)
    with pytest.raises(StorageError, match="changed while"):
        list(reading)

    write_parquet(path, plain(49_999))
    with pytest.raises(StorageError, match="changed while"):
        list(tables(shard))

    path.write_bytes(b"PAR1PAR1")
    with pytest.raises(StorageError, match="`"):
        list(tables(shard))

    path.unlink()
    with pytest.raises(StorageError, match="No such file"):
        list(tables(shard))


def test_a_broken_page_is_an_error_of_the_run(tmp_path: Path) -> None:
    table = pa.table({"prompt": [f"{n} {n * n}" for n in range(20_000)]})
    path = write_parquet(
        tmp_path / "t.parquet",
        table,
        use_dictionary=False,
        write_page_checksum=True,
        data_page_size=5000,
    )
    (shard,) = shards_of(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    with pytest.raises(StorageError, match="cannot be read"):
        list(tables(shard))


EDGE_TIMES = [
    -62_135_596_800_000_000,
    -11_676_092_154_321_099,
    -1,
    None,
    253_402_300_799_999_999,
]
"""Microseconds: the years 1, 1600, 1969 and 9999."""


def test_int96_times_outside_of_the_years_of_nanoseconds_are_exact(tmp_path: Path) -> None:
    times = pa.array(EDGE_TIMES, pa.timestamp("us"))
    nested: Any = pa.array([[time] for time in EDGE_TIMES], pa.list_(pa.timestamp("us")))
    table = pa.table({"a.b": times, "n": nested})
    path = tmp_path / "spark.parquet"
    parquet.write_table(table, path, use_deprecated_int96_timestamps=True)

    (shard,) = shards_of(path)
    read = pa.Table.from_batches([table.batch for table in all_of(shard)])

    assert read["a.b"].to_pylist() == times.to_pylist()
    assert read["n"].to_pylist() == nested.to_pylist()
    assert schema(str(path)).field("a.b").type == pa.timestamp("us")


@pytest.mark.parametrize("nested", [False, True])
def test_int96_times_below_the_microsecond_refuse_the_file(
    tmp_path: Path, nested: bool
) -> None:
    times: Any = pa.array([None, 1_000, 2_000, -1], pa.timestamp("ns"))
    if nested:
        times = pa.StructArray.from_arrays([times], ["in"])
    path = tmp_path / "fine.parquet"
    table = pa.table({"p": list("abcd"), "when": times})
    parquet.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=2)

    with pytest.raises(BadSource, match="column `when` holds INT96 times"):
        shards_of(path)
