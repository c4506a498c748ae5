"""Repeated ids become unique, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill import ids as seen_ids
from rowmill.config import Job
from rowmill.mend import repeats
from rowmill.mend.repeats import Repeats, value_span
from rowmill.rows import Limits
from rowmill.storage import LocalStorage
from rowmill.validate import compile_recipe
from rowmill.validate.recipe import id_columns


def mended(folder: Path, files: Sequence[Sequence[bytes]], **job: Any) -> list[list[bytes]]:
    """The lines of the files afterwards."""
    folder.mkdir(exist_ok=True)
    names = [f"{number}.jsonl" for number in range(len(files))]
    for name, lines in zip(names, files, strict=True):
        (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    asked = Job.model_validate(job)
    recipe = compile_recipe(asked, limits=Limits(), chat_template=False)
    storage = LocalStorage(str(folder))

    told = Repeats(storage, names, recipe=recipe, columns=id_columns(asked)).mend()

    after = [(folder / name).read_bytes().split(b"\n")[:-1] for name in names]
    changed = {
        name: sum(old != new for old, new in zip(before, lines, strict=True))
        for name, before, lines in zip(names, files, after, strict=True)
    }
    assert told == {name: number for name, number in changed.items() if number}
    assert sorted(path.name for path in folder.iterdir()) == names
    return after


def row(id_: object, **more: object) -> bytes:
    return json.dumps({"id": id_, "prompt": "p", **more}).encode()


def ids_of(lines: Sequence[bytes]) -> list[object]:
    return [json.loads(line).get("id") for line in lines]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["a", "b", "a", "a"], ["a", "b", "a-2", "a-3"]),
        (["a", "a", "a-2"], ["a", "a-3", "a-2"]),
        (["a-2", "a", "a", "a-3"], ["a-2", "a", "a-4", "a-3"]),
        ([7, 7, "7", "7", "7-2"], [7, "7-3", "7", "7-4", "7-2"]),
        ([1.0, 1, 1.0, True, True], [1.0, 1, "1.0-2", True, "true-2"]),
        ([None, "", None, ""], [None, "", None, ""]),
        (["\u00e9", "e\u0301", "\u00e9"], ["\u00e9", "e\u0301", "\u00e9-2"]),
        (['"\\\n', '"\\\n'], ['"\\\n', '"\\\n-2']),
    ],
)
def test_later_rows_of_an_id_get_a_number_that_is_free(
    tmp_path: Path, before: list[object], after: list[object]
) -> None:
    (lines,) = mended(tmp_path / "copy", [[row(id_) for id_ in before]])

    assert ids_of(lines) == after


def test_ids_are_unique_across_files(tmp_path: Path) -> None:
    one, two, three = mended(
        tmp_path / "copy", [[row("a"), row("b")], [row("c")], [row("b"), row("b"), row("a")]]
    )

    assert [ids_of(one), ids_of(two)] == [["a", "b"], ["c"]]
    assert ids_of(three) == ["b-2", "b-3", "a-2"]


@pytest.mark.parametrize(
    "line",
    [
        rb'{ "p" : {"id": "a"}, "id" : "a<>" , "prompt":"a"}',
        rb'{"i\u0064":"\u0061<>","prompt":"x"}',
        b'{"prompt":"x","id":"b","id":"a<>"}',
        b'{"custom_id": "", "id": "a<>", "prompt": "id"}',
        b'{"prompt": "\\"id\\": \\"a\\"", "x": [1, {"id": "a"}], "id": "a<>"}',
        b'  {"id":"a<>","prompt":"x"}\t',
    ],
)
def test_nothing_but_the_id_changes(tmp_path: Path, line: bytes) -> None:
    old, new = line.replace(b"<>", b""), line.replace(b"<>", b"-2")

    (after,) = mended(tmp_path / "copy", [[row("a"), old]])

    assert after == [row("a"), new]


def test_the_id_column_is_that_of_the_job(tmp_path: Path) -> None:
    lines = [b'{"k": 1, "id": "a", "t": "x"}', b'{"k": 1, "id": "a", "t": "x"}']

    (after,) = mended(tmp_path / "copy", [lines], prompt="{t}", validate={"id_column": "k"})

    assert after == [lines[0], b'{"k": "1-2", "id": "a", "t": "x"}']


def test_an_id_of_a_folder_is_written_into_rows_that_repeat_it(tmp_path: Path) -> None:
    name = "dt=1/id=7/a.jsonl"
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    rows = [b'{"prompt":"x"}', b' {"prompt":"y"} ', b'{"prompt":"z","id":"b"}', b"{}"]
    file.write_bytes(b"\n".join([*rows, b""]))

    def mend() -> dict[str, int]:
        recipe = compile_recipe(Job(), limits=Limits(), chat_template=False)
        storage, columns = LocalStorage(str(tmp_path)), id_columns(Job())
        return Repeats(
            storage, [name], recipe=recipe, columns=columns, with_folders=True
        ).mend()

    assert [mend(), mend()] == [{name: 1}, {}]
    mended_row = b' {"prompt":"y","id":"7-2"} '
    assert file.read_bytes().splitlines() == [rows[0], mended_row, *rows[2:]]


def test_batch_lines_are_known_by_custom_id(tmp_path: Path) -> None:
    line = (
        b'{"custom_id": "a", "method": "POST", "url": "/v1/completions",'
        b' "body": {"prompt": "id", "max_tokens": 1}}'
    )

    (after,) = mended(tmp_path / "copy", [[line, line, line]])

    assert after == [line, line.replace(b'"a"', b'"a-2"'), line.replace(b'"a"', b'"a-3"')]


def test_rows_that_cannot_be_asked_keep_their_id_and_nobody_else_gets_it(
    tmp_path: Path,
) -> None:
    unread = b'{"id": "a", "prompt": "x", "more": "caf\xe9"}'
    bad = [
        unread,
        b'{"id": "a"}',
        b'{"id": "a-2"}',
        b'{"id": "a", "prompt": "caf\xe9"}',
        b"[1]",
    ]

    (after,) = mended(tmp_path / "copy", [[*bad, row("a"), row("a"), *bad]])

    assert after == [*bad, row("a"), row("a-3"), *bad]


def test_files_without_repeats_are_not_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    mended(folder, [[row(1), row(1)], [row(2), row(3)]])
    before = [(folder / f"{n}.jsonl").stat() for n in range(2)]

    mended_again = Repeats(
        LocalStorage(str(folder)),
        ["0.jsonl", "1.jsonl"],
        recipe=compile_recipe(Job(), limits=Limits(), chat_template=False),
        columns=id_columns(Job()),
    ).mend()

    assert mended_again == {}
    assert [(folder / f"{n}.jsonl").stat().st_ino for n in range(2)] == [
        s.st_ino for s in before
    ]


@given(
    st.lists(
        st.lists(
            st.sampled_from(["a", "a-2", "a-3", "a-2-2", 1, "1", "1-2", None]), max_size=9
        ),
        min_size=1,
        max_size=4,
    )
)
def test_every_row_has_an_id_of_its_own_and_the_first_keeps_it(
    tmp_path_factory: pytest.TempPathFactory, ids: list[list[object]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_ids, "RECENT_IDS", 3)
        patch.setattr(repeats, "MAX_NUMBERS", 2)
        patch.setattr(repeats, "BLOCK_BYTES", 64)
        patch.setattr(repeats, "_FIRST_READ", 8)
        after = mended(
            tmp_path_factory.mktemp("x"), [[row(id_) for id_ in file] for file in ids]
        )

    old = [id_ for file in ids for id_ in file]
    new = [id_ for file in after for id_ in ids_of(file)]
    given_ids = [json.dumps(id_) for id_ in new if id_ is not None]
    assert len(set(given_ids)) == len(given_ids)
    firsts = {json.dumps(id_): at for at, id_ in reversed(list(enumerate(old)))}
    for at, id_ in enumerate(old):
        if id_ is None or firsts[json.dumps(id_)] == at:
            assert new[at] == id_
        else:
            assert str(new[at]).rpartition("-")[0] == str(id_)
            assert json.dumps(new[at]) not in firsts


def test_many_rows_of_one_id_all_get_their_own_while_numbers_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "MAX_NUMBERS", 1)
    monkeypatch.setattr(repeats, "BLOCK_BYTES", 256)

    (after,) = mended(tmp_path / "copy", [[row("a"), row("b")] * 300])

    assert len(set(ids_of(after))) == 600


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=6)),
    lambda part: st.one_of(st.lists(part), st.dictionaries(st.text(max_size=3), part)),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["id", "b", '"', "\\", "\u00e9"]), JSON), st.booleans())
def test_a_value_is_found_where_it_stands(row: dict[str, object], ascii: bool) -> None:
    indent = ", " if ascii else " ,\t"
    line = json.dumps(row, ensure_ascii=ascii, separators=(indent, " : ")).encode(
        "utf-8", "surrogatepass"
    )

    for name, value in row.items():
        start, stop = value_span(line, name)
        assert json.loads(line[start:stop].decode("utf-8", "surrogatepass")) == value
        assert line[start:stop] == line[start:stop].strip()
    assert value_span(line, "absent") == (0, 0)
