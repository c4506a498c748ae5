"""Rows put apart on the disk come back lot by lot."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import StorageError
from rowmill.read import BadLine
from rowmill.read import lots as module
from rowmill.read.lots import LotFiles, read_lot
from rowmill.rows import AnyRow, Row

ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.binary(max_size=40) | st.text(max_size=10)), max_size=60
)


def written(folder: Path, rows: list[AnyRow | BadLine], lots: list[int]) -> dict[int, Path]:
    files = LotFiles(folder, "draft-", range(5))
    for start in range(0, len(rows), 7):
        files.add(rows[start : start + 7], lots[start : start + 7])
    return files.finish()


@given(ROWS, st.sampled_from([1, 100, 1 << 26]))
def test_a_lot_gives_back_its_rows_in_order(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, bytes | str]], held: int
) -> None:
    rows: list[AnyRow | BadLine] = [
        BadLine(key, what) if isinstance(what, str) else Row(key, what)
        for key, (_, what) in enumerate(drawn)
    ]
    lots = [lot for lot, _ in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "HELD_BYTES", held)
        paths = written(tmp_path_factory.mktemp("lots"), rows, lots)

    for lot, path in paths.items():
        expected = [row for row, at in zip(rows, lots, strict=True) if at == lot]
        found = list(read_lot("lot", path.read_bytes(), len(expected)))
        assert expected == [row for chunk in found for row in chunk]


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_lot_that_is_cut_short_is_not_read_as_if_it_were_whole(
    tmp_path: Path, cut: int
) -> None:
    rows: list[AnyRow | BadLine] = [Row(key, b'{"a":%d}' % key) for key in range(100)]
    content = written(tmp_path, rows, [0] * 100)[0].read_bytes()

    with pytest.raises(StorageError, match="is damaged"):
        list(read_lot("lot", content[:-cut], 100))
    with pytest.raises(StorageError, match="is damaged"):
        list(read_lot("lot", b"", 100))


def test_what_is_abandoned_leaves_no_file(tmp_path: Path) -> None:
    files = LotFiles(tmp_path, "draft-", range(3))
    files.add([Row(1, b"{}")], [1])
    files.finish()
    files.abandon()

    assert not list(tmp_path.iterdir())
