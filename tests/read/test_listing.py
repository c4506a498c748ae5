"""What a path, a pattern or a folder stands for."""

from __future__ import annotations

import gzip
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from rowmill.errors import BadSource
from rowmill.read.listing import list_files
from rowmill.read_config import ReadConfig


def touch(folder: Path, *names: str, content: bytes = b"{}\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def names(*paths: Path | str) -> list[str]:
    return [file.name for file in list_files([str(path) for path in paths])[0]]


def refusal(*paths: Path | str) -> str:
    with pytest.raises(BadSource) as caught:
        list_files([str(path) for path in paths])
    return str(caught.value)


def test_a_folder_is_read_with_its_subfolders_by_name(tmp_path: Path) -> None:
    touch(tmp_path, "b.jsonl", "a/z.ndjson", "a/y.json", "c.JSONL")

    assert names(tmp_path) == ["a/y.json", "a/z.ndjson", "b.jsonl", "c.JSONL"]


def test_what_is_passed_over_is_counted(tmp_path: Path) -> None:
    touch(
        tmp_path, "a.jsonl", "_SUCCESS", ".b.jsonl", "_tmp/c.jsonl", "README.md", "d.dat", "e"
    )
    touch(tmp_path, "empty.jsonl", content=b"")
    files, notes = list_files([str(tmp_path)])

    assert [file.name for file in files] == ["a.jsonl"]
    assert notes == [
        "passed over: `.dat` files (1), `.md` files (1), empty files (1),"
        " files without a suffix (1), hidden files (2), hidden folders (1)"
    ]


def test_order_is_that_of_the_list(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "b.jsonl", "c.jsonl")

    assert names(tmp_path / "c.jsonl", tmp_path / "a.jsonl") == ["c.jsonl", "a.jsonl"]


def test_a_pattern_names_files_from_its_first_wildcard_on(tmp_path: Path) -> None:
    touch(tmp_path, "in/2.jsonl", "in/1.jsonl", "in/sub/3.jsonl", "in/x.csv")

    assert names(tmp_path / "in/*.jsonl") == ["1.jsonl", "2.jsonl"]
    assert names(tmp_path / "in/**/*.jsonl") == ["1.jsonl", "2.jsonl", "sub/3.jsonl"]


def test_a_relative_pattern_is_read_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "a.jsonl", "s/b.jsonl")
    monkeypatch.chdir(tmp_path)

    assert names("*.jsonl") == ["a.jsonl"]
    assert names("./s/*.jsonl") == ["b.jsonl"]
    assert str(tmp_path / "a.jsonl") == list_files(["a.jsonl"])[0][0].path


def test_a_pattern_takes_hidden_files_only_where_it_asks_for_them(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "_b.jsonl", "_t/c.jsonl")

    assert names(tmp_path / "**/*.jsonl") == ["a.jsonl"]
    assert names(tmp_path / "_*.jsonl") == ["_b.jsonl"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].jsonl", "a1.jsonl")

    assert names(tmp_path / "a[1].jsonl") == ["a[1].jsonl"]


def test_names_that_two_files_share_grow_until_they_differ(tmp_path: Path) -> None:
    touch(tmp_path, "x/part.jsonl", "y/part.jsonl", "y/other.jsonl")

    assert names(tmp_path / "x", tmp_path / "y")[:1] + names(tmp_path / "x", tmp_path / "y")[
        :0:-1
    ] == ["x/part.jsonl", "y/part.jsonl", "other.jsonl"]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "b.jsonl")
    files, notes = list_files([str(tmp_path / "a.jsonl"), str(tmp_path)])

    assert [file.name for file in files] == ["a.jsonl", "b.jsonl"]
    assert notes == ["passed over: files named before (1)"]


def test_a_link_inside_a_folder_does_not_give_rows_twice(tmp_path: Path) -> None:
    touch(tmp_path, "data.jsonl")
    (tmp_path / "a-link.jsonl").symlink_to("data.jsonl")

    assert names(tmp_path) == ["data.jsonl"]


def test_a_link_to_a_hidden_file_of_the_folder_is_read(tmp_path: Path) -> None:
    touch(tmp_path, "..v1/rows.jsonl")
    (tmp_path / "rows.jsonl").symlink_to("..v1/rows.jsonl")

    assert names(tmp_path) == ["rows.jsonl"]


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder with a file, a link to a file and two to a folder outside, and one to a folder above it all."""
    touch(tmp_path, "in/deep/a.jsonl", "out/b.jsonl", "out/c.jsonl")
    folder = tmp_path / "in"
    (folder / "b.jsonl").symlink_to(tmp_path / "out/b.jsonl")
    (folder / "more").symlink_to(tmp_path / "out")
    (folder / "ring").symlink_to(folder)
    (folder / "more2").symlink_to(tmp_path / "out")
    return folder


@pytest.mark.parametrize("pattern", ["", "/**/*.jsonl"])
def test_links_that_lead_out_of_a_folder_are_refused(linked: Path, pattern: str) -> None:
    with pytest.raises(BadSource) as refused:
        list_files([f"{linked}{pattern}"])

    for name in ("b.jsonl", "more"):
        assert f"`{linked / name}" in str(refused.value)
    assert "leads out of the folder, to `" in str(refused.value)


@pytest.mark.parametrize("pattern", ["", "/**/*.jsonl"])
def test_links_that_lead_out_of_a_folder_are_passed_over_on_request(
    linked: Path, pattern: str
) -> None:
    files, notes = list_files([f"{linked}{pattern}"], ReadConfig(links="skip"))

    assert [file.name for file in files] == ["deep/a.jsonl"]
    assert "links that lead out of the folder" in notes[0]


def test_links_that_lead_out_of_a_folder_are_followed_on_request_once(linked: Path) -> None:
    (linked / "deep/back").symlink_to(linked.parent)

    files, _ = list_files([str(linked)], ReadConfig(links="follow"))

    assert sorted(Path(file.path).name for file in files) == ["a.jsonl", "b.jsonl", "c.jsonl"]


def test_links_that_are_named_are_followed(tmp_path: Path) -> None:
    touch(tmp_path, "out/b.jsonl")
    (tmp_path / "link.jsonl").symlink_to("out/b.jsonl")
    (tmp_path / "folder").symlink_to("out")

    assert names(tmp_path / "link.jsonl") == ["link.jsonl"]
    assert names(tmp_path / "folder") == ["b.jsonl"]


def test_all_paths_that_cannot_be_read_are_told_at_once(tmp_path: Path) -> None:
    touch(tmp_path, "rows.txt", "notes.md")
    (tmp_path / "ring.jsonl").symlink_to("ring.jsonl")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    told = refusal(
        *(tmp_path / name for name in ("none.jsonl", "rows.txt", "ring.jsonl", "empty")),
        *(tmp_path / "pipe.jsonl", tmp_path / "no-*.jsonl", "ftp://b/c"),
    )

    assert "7 inputs cannot be read" in told
    for sentence in (
        "none.jsonl`: no such file or folder",
        "rows.txt`: `.txt` is none of `.jsonl`, `.ndjson`,",
        "ring.jsonl`: cannot be read (Too many levels of symbolic links)",
        "empty`: no file of rows there; such files end in",
        "pipe.jsonl`: not a regular file",
        "no-*.jsonl`: no file of rows there",
        "`ftp://b/c`: is at no place that is known",
    ):
        assert sentence in told


def test_a_folder_of_other_files_tells_what_is_there(tmp_path: Path) -> None:
    touch(tmp_path, "a.crc", "b.crc", "_SUCCESS")

    assert "(passed over: `.crc` files (2), hidden files (1))" in refusal(tmp_path)


def test_a_folder_of_empty_files_is_an_input_of_no_rows(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", content=b"")

    assert names(tmp_path) == []


def test_no_path_at_all_is_refused() -> None:
    assert "no input is named" in refusal()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{}".encode("utf-16"), "is UTF-16 text; write it as UTF-8"),
        (b"\xfe\xff\0{\0}", "is UTF-16 text"),
        ("{}".encode("utf-32"), "is UTF-32 text"),
        (b"PK\x03\x04", "holds a ZIP archive; unpack it"),
        (b"a.jsonl".ljust(257, b"\0") + b"ustar\x0000", "holds a tar archive; unpack it"),
    ],
)
def test_files_that_are_no_text_are_told_by_what_they_are(
    tmp_path: Path, content: bytes, told: str
) -> None:
    touch(tmp_path, "a.jsonl", content=content)

    assert f"a.jsonl`: {told}" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a.zip", "holds a ZIP archive; unpack it"),
        ("a.tar.gz", "holds a tar archive; unpack it"),
        ("a.TGZ", "holds a tar archive; unpack it"),
        ("a.xlsx", "is a workbook; save its sheet as CSV"),
        ("a.avro", "is Avro; write its rows as JSON Lines"),
        ("a.orc", "is ORC; write its rows as Parquet"),
        ("a.db", "is an SQLite database"),
        ("a.txt", "say what it holds with `read.format`"),
    ],
)
def test_files_of_other_kinds_are_told_by_name_or_by_their_first_bytes(
    tmp_path: Path, name: str, told: str
) -> None:
    touch(tmp_path, name, content=b"SQLite format 3\0" if name == "a.db" else b"")

    assert told in refusal(tmp_path / name)


def test_orc_and_workbooks_are_known_by_their_bytes(tmp_path: Path) -> None:
    orc.write_table(pa.table({"prompt": ["a", "b"]}), tmp_path / "orc.jsonl")
    with zipfile.ZipFile(tmp_path / "book.jsonl", "w") as book:
        book.writestr("[Content_Types].xml", "<Types/>")
    touch(tmp_path, "orcs.csv", content=b"ORC,elf\n1,2\n")

    assert "is ORC" in refusal(tmp_path / "orc.jsonl")
    assert "is an Office file" in refusal(tmp_path / "book.jsonl")
    assert names(tmp_path / "orcs.csv") == ["orcs.csv"]


def test_what_a_file_is_stands_with_it(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "b.json")
    touch(tmp_path, "c.jsonl", content=gzip.compress(b"{}"))
    touch(tmp_path, "d.jsonl", content=b"PAR1")
    found = list_files([str(tmp_path)])[0]

    assert [(file.container, file.format) for file in found] == [
        ("", "jsonl"),
        ("", "json"),
        ("gzip", "jsonl"),
        ("", "parquet"),
    ]


def test_standard_input_is_one_file_however_often_it_is_named() -> None:
    found, notes = list_files(["-", "-"])

    assert [(file.path, file.name, file.format) for file in found] == [("-", "stdin", "json")]
    assert notes == ["passed over: files named before (1)"]


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/b\xe9.jsonl"
    try:
        with open(path, "wb") as file:  # noqa: PTH123 - `Path` takes no bytes
            file.write(b"{}\n")
    except OSError:
        pytest.skip("the file system takes no such name")

    assert "its path is not valid UTF-8; rename it" in refusal(tmp_path)
