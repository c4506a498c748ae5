"""Listed files beside a run's: known by path, else by name and content, else by content alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowmill.read import open_recorded, open_source
from rowmill.read.listing import Found
from rowmill.read.scan import SourceFile, digest_of
from rowmill.read.source import changed


def lay(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"a": "{text}"}}\n', "utf-8")
    return str(path)


def names(files: list[SourceFile]) -> list[str]:
    return [file.name for file in files]


def joining(known: list[SourceFile], *paths: str) -> list[str]:
    return names(open_source(paths, known=known, first_index=len(known)).files)


def test_a_file_is_known_by_its_path_however_it_is_named_now(tmp_path: Path) -> None:
    old, new = lay(tmp_path / "a/x.jsonl", "1"), lay(tmp_path / "b/x.jsonl", "2")
    known = open_source([old]).files

    assert names(known) == ["x.jsonl"]
    assert joining(known, old, new) == ["b/x.jsonl"]
    assert joining(known, str(tmp_path)) == ["b/x.jsonl"]
    assert joining(known, old) == []
    assert changed(known, paths=[str(tmp_path / "a")]) == {}
    assert changed(known, paths=[old, new]) == {"b/x.jsonl": "added"}


def test_a_known_name_elsewhere_is_known_where_the_content_is(tmp_path: Path) -> None:
    old, same = lay(tmp_path / "a/x.jsonl", "1"), lay(tmp_path / "b/x.jsonl", "1")
    other = lay(tmp_path / "c/x.jsonl", "2")
    known = open_source([old]).files

    assert joining(known, same) == []
    assert joining(known, other) == ["c/x.jsonl"]
    assert joining(known, old, same) == ["b/x.jsonl"]
    assert changed(known, paths=[other]) == {"x.jsonl": "not named", "c/x.jsonl": "added"}
    assert changed(known, paths=[other], may_join=True) == {}


def test_a_known_file_that_is_gone_and_another_in_its_name_is_changed(tmp_path: Path) -> None:
    old, other = lay(tmp_path / "a/x.jsonl", "1"), lay(tmp_path / "b/x.jsonl", "2")
    known = open_source([old]).files
    Path(old).unlink()

    assert joining(known, other) == []
    assert changed(known, paths=[other], may_join=True) == {"x.jsonl": "changed"}
    assert changed(known, paths=[other]) == {"x.jsonl": "changed"}
    assert changed(known, paths=[lay(tmp_path / "y.jsonl", "3")], may_join=True) == {
        "x.jsonl": "gone"
    }


@pytest.mark.parametrize("upper", ["x.jsonl", "b/x.jsonl"])
def test_new_names_grow_past_all_that_are_taken(tmp_path: Path, upper: str) -> None:
    base = tmp_path / "base"
    first = [lay(base / "x.jsonl", "1"), lay(tmp_path / "o/b/x.jsonl", "2")]
    known = open_source(first).files
    more = [lay(tmp_path / "p/b/x.jsonl", "3"), lay(tmp_path / "q" / upper, "4")]

    found = joining(known, *more)

    assert len({*found, *names(known)}) == 4
    assert all(path.endswith(name) for path, name in zip(more, found, strict=True))


def test_files_that_joined_need_not_be_named(tmp_path: Path) -> None:
    old, new = lay(tmp_path / "x.jsonl", "1"), lay(tmp_path / "y.jsonl", "2")
    both = open_source([old, new]).files

    assert changed(both, paths=[old]) == {"y.jsonl": "not named"}
    assert changed(both, paths=[old], joined={"y.jsonl"}) == {}
    Path(new).unlink()
    assert changed(both, paths=[old], joined={"y.jsonl"}) == {"y.jsonl": "gone"}


def test_a_file_that_went_elsewhere_under_another_name_is_known_by_its_content(
    tmp_path: Path,
) -> None:
    old, other = lay(tmp_path / "a/x.jsonl", "1"), lay(tmp_path / "a/y.jsonl", "2")
    source = open_source([old, other])
    Path(old).rename(tmp_path / "z.jsonl")
    new = str(tmp_path / "z.jsonl")

    assert changed(source.files, paths=[other, new]) == {}
    assert joining(source.files, new) == []
    found = open_recorded(source.files, source.shards, paths=[new, other])
    assert names(found.files) == ["x.jsonl", "y.jsonl"]
    assert [file.path for file in found.files] == [new, other]
    assert [shard.path for shard in found.shards] == [new, other]


def test_a_copy_beside_a_known_file_is_a_file_of_its_own(tmp_path: Path) -> None:
    old, copy = lay(tmp_path / "x.jsonl", "1"), lay(tmp_path / "y.jsonl", "1")
    known = open_source([old]).files

    assert changed(known, paths=[old, copy]) == {"y.jsonl": "added"}
    assert joining(known, copy) == ["y.jsonl"]


def test_files_of_one_content_are_each_found_once(tmp_path: Path) -> None:
    old = [lay(tmp_path / f"{n}.jsonl", "1") for n in range(3)]
    known = open_source(old).files
    new = [lay(tmp_path / f"new/{n}.jsonl", "1") for n in "abcd"]
    for path in old:
        Path(path).unlink()

    assert changed(known, paths=new[:3]) == {}
    assert changed(known, paths=new) == {"d.jsonl": "added"}
    assert changed(known, paths=new[:2]) == {"2.jsonl": "gone"}


def test_a_name_that_another_file_took_hides_no_file_that_moved(tmp_path: Path) -> None:
    old = lay(tmp_path / "x/a.jsonl", "1")
    source = open_source([old])
    moved, other = str(tmp_path / "x/b.jsonl"), lay(tmp_path / "y/a.jsonl", "2")
    Path(old).rename(moved)

    assert joining(source.files, moved, other) == ["y/a.jsonl"]
    assert joining(source.files, other, moved) == ["y/a.jsonl"]
    assert changed(source.files, paths=[moved, other]) == {"y/a.jsonl": "added"}
    found = open_recorded(source.files, source.shards, paths=[moved, other], may_join=True)
    assert [file.path for file in found.files] == [moved]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["log.jsonl", "log1.jsonl"], ["log1.jsonl", "log2.jsonl"]),
        (["a.jsonl", "b.jsonl"], ["b.jsonl", "a.jsonl"]),
    ],
)
def test_files_that_moved_under_names_of_each_other_are_found(
    tmp_path: Path, before: list[str], after: list[str]
) -> None:
    old = [lay(tmp_path / "old" / name, f"{n}") for n, name in enumerate(before)]
    source = open_source(old)
    (tmp_path / "new").mkdir()
    for path, name in zip(old, after, strict=True):
        Path(path).rename(tmp_path / "new" / name)
    now = str(tmp_path / "new")

    assert changed(source.files, paths=[now]) == {}
    assert joining(source.files, now) == []
    found = open_recorded(source.files, source.shards, paths=[now])
    assert [file.path for file in found.files] == [str(tmp_path / "new" / n) for n in after]
    assert names(found.files) == before


def test_a_file_is_read_once_to_be_known_and_never_where_its_size_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = open_source([lay(tmp_path / "x.jsonl", "1"), lay(tmp_path / "y.jsonl", "2")]).files
    for name in "xy":
        (tmp_path / f"{name}.jsonl").unlink()
    read: list[str] = []

    def counted(file: Found) -> str:
        read.append(file.name)
        return digest_of(file)

    monkeypatch.setattr("rowmill.read.known.digest_of", counted)
    new = [lay(tmp_path / "new" / f"{a}.jsonl", t) for a, t in (("y", "1"), ("z", "2"))]
    longer = lay(tmp_path / "new/x.jsonl", "1, and more")

    assert changed(files, paths=[*new, longer]) == {"new/x.jsonl": "added"}
    assert sorted(read) == ["y.jsonl", "z.jsonl"]


def test_a_file_that_is_there_but_not_named_is_not_gone(tmp_path: Path) -> None:
    old, copy = lay(tmp_path / "x.jsonl", "1"), lay(tmp_path / "y.jsonl", "1")
    source = open_source([old])

    assert changed(source.files, paths=[copy]) == {"x.jsonl": "not named", "y.jsonl": "added"}
    Path(old).unlink()
    Path(old).mkdir()
    assert changed(source.files, paths=[copy]) == {}
