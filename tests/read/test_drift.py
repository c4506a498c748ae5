"""Columns that differ between files are told once, with a file for each way they are."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from rowmill.read import open_source


def notes(folder: Path, **tables: pa.Table) -> list[str]:
    for place, table in tables.items():
        file = folder / f"{place.replace('__', '/').replace('_IS_', '=')}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, file)
    return open_source([str(folder)]).notes


def test_files_of_one_kind_and_one_file_have_no_note(tmp_path: Path) -> None:
    table = pa.table({"p": ["x"]})

    assert notes(tmp_path / "two", a=table, b=table) == []
    assert notes(tmp_path / "one", a=table) == []


def test_each_way_a_column_is_has_its_first_file(tmp_path: Path) -> None:
    (note,) = notes(
        tmp_path,
        a=pa.table({"p": ["x"], "k": [1]}),
        b=pa.table({"p": ["x"], "k": ["1"]}),
        c=pa.table({"p": ["x"]}),
        d=pa.table({"p": ["x"], "k": [1]}),
    )

    assert note == (
        "columns differ between files: `k` is int64 in a.parquet, string in b.parquet,"
        " absent in c.parquet"
    )


def test_a_column_that_folders_give_to_the_others_is_a_clash_and_no_difference(
    tmp_path: Path,
) -> None:
    (note,) = notes(
        tmp_path,
        k_IS_007__a=pa.table({"p": ["x"]}),
        k_IS_8__b=pa.table({"p": ["x"], "k": ["own"]}),
    )

    assert note == (
        "`k` is a column of k=8/b.parquet and of the folder it lies in: the file's own counts"
    )


def test_a_folder_s_text_beside_a_file_s_number_is_a_difference_too(tmp_path: Path) -> None:
    differing, clash = notes(
        tmp_path,
        k_IS_007__a=pa.table({"p": ["x"]}),
        k_IS_8__b=pa.table({"p": ["x"], "k": [8]}),
    )

    assert "`k` is string in k=007/a.parquet, int64 in k=8/b.parquet" in differing
    assert "the file's own counts" in clash


def test_names_that_could_move_the_cursor_are_escaped(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, a=pa.table({"\x1b[2J": ["x"]}), b=pa.table({"\x1b[2J": [1]}))

    assert "\x1b" not in note
    assert "x1b[2J" in note


def test_of_many_columns_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(10)]

    (note,) = notes(
        tmp_path,
        a=pa.table({name: ["x"] for name in names}),
        b=pa.table({name: [1] for name in names}),
    )

    assert "`c7` is" in note
    assert "`c8`" not in note
    assert note.endswith("; and 2 more")


@pytest.mark.parametrize(
    "content",
    [
        b'\n{"k": 1}\n{"k": 2}\n',
        gzip.compress(b'{"\\u006b": null}', mtime=0),
        b'\xef\xbb\xbf {"p": "x", "k": "own"}',
    ],
    ids=["plain", "packed", "marked"],
)
def test_a_column_of_rows_and_of_their_folder_is_told_of_lines_too(
    tmp_path: Path, content: bytes
) -> None:
    for name, text in {"k=1/a": b'{"p": "k"}\n', "k=1/b": content, "k=2/c": content}.items():
        path = tmp_path / f"in/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)

    (note,) = open_source([str(tmp_path / "in")], spool=tmp_path / "spool").notes

    assert note == (
        "`k` is a column of rows of k=1/b.jsonl and of the folder it lies in: a row's own counts"
    )


@pytest.mark.parametrize(
    "content", [b"[1]", b'{"k', b'["k"]\n{"k": 1}', b'{"p": "k"}', b"\n\n"]
)
def test_lines_that_are_no_rows_have_no_columns(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "k=1").mkdir()
    (tmp_path / "k=1/a.jsonl").write_bytes(content)

    assert open_source([str(tmp_path)]).notes == []


def test_elements_of_an_array_are_rows(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    (tmp_path / "k=1/a.json").write_text('[{"k":\n 1}, {}]')

    (note,) = open_source([str(tmp_path)], spool=tmp_path / "spool").notes

    assert "`k` is a column of rows of k=1/a.json" in note
