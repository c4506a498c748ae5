"""`check --fix`: broken files in, good rows out, the input untouched."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill.cli import main
from rowmill.config import Job
from rowmill.errors import BadSource, StorageError
from rowmill.mend import Fixed, fix
from rowmill.storage.drafts import _LocalDraft
from tests.strategies import TEXTS

ROW, OTHER = b'{"id": "a", "prompt": "x"}\n', b'{"id": "b", "prompt": "y"}\n'


def job(*source: Path, **more: Any) -> Job:
    return Job.model_validate(
        {"source": [str(path) for path in source], "engine": {"name": "echo"}, **more}
    )


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, args), "--engine", "echo"])


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def held(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def states(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file()
    }


class Breaking:
    """A good file, and how it was broken."""

    def __init__(self, draw: st.DrawFn) -> None:
        prompts = draw(st.lists(TEXTS.filter(bool), min_size=1, max_size=5))
        ids = draw(
            st.lists(st.sampled_from(["a", "a-2", "b", 7, None]), min_size=5, max_size=5)
        )
        ascii = draw(st.booleans())
        self.rows: list[dict[str, Any]] = [
            {"id": id_, "prompt": prompt, "odd": "NaN\r\u0000"}
            for id_, prompt in zip(ids, prompts, strict=False)
        ]
        raw = [json.dumps(row, ensure_ascii=ascii) for row in self.rows]
        if draw(st.booleans()):
            raw = [line.replace("\\u0000", "\0") for line in raw]
        self.end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
        blank = draw(st.sampled_from(["", self.end, f" \t{self.end}"]))
        text = self.end.join(raw) + self.end
        text = text.replace(self.end, self.end + blank)
        self.cut = draw(st.sampled_from(["", *raw]))
        if self.cut:
            self.cut = self.cut[: draw(st.integers(1, len(self.cut) - 1))]
        elif draw(st.booleans()):
            text = text.removesuffix(self.end + blank)
        self.encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-16", "utf-32"]))
        mark = "\ufeff" if self.encoding != "utf-8" or draw(st.booleans()) else ""
        codec = {"utf-16": "utf-16-be", "utf-32": "utf-32-le"}.get(self.encoding, self.encoding)
        self.content = (mark + text + self.cut).encode(codec)


@settings(max_examples=25)
@given(st.composite(Breaking)())
def test_a_broken_file_gives_its_good_rows(
    tmp_path_factory: pytest.TempPathFactory, broken: Breaking
) -> None:
    tmp_path = tmp_path_factory.mktemp("broken")
    source = written(tmp_path / "in", {"sub/x.jsonl": broken.content})
    before = states(source)

    fixed = fix(job(source), str(tmp_path / "copy"))

    assert states(source) == before
    after = held(tmp_path / "copy")
    rows = [json.loads(line) for line in after["sub/x.jsonl"].split(b"\n")[:-1]]
    bare = [{**row, "id": 0} for row in rows]
    assert bare == [{**row, "id": 0} for row in broken.rows]
    ids = [json.dumps(row["id"]) for row in rows if row["id"] is not None]
    assert len(ids) == len(set(ids))
    assert after.get("sub/x.jsonl.cut", b"") == broken.cut.encode()
    assert (fixed.exit_code, fixed.after.bad_rows, fixed.after.rows) == (0, 0, len(rows))
    check_again(tmp_path, after)


def check_again(tmp_path: Path, after: dict[str, bytes]) -> None:
    """Mending the copy changes no byte."""
    again = fix(job(tmp_path / "copy"), str(tmp_path / "again"))

    kept = {name: text for name, text in after.items() if not name.endswith(".cut") and text}
    assert held(tmp_path / "again") == kept
    assert not again.total.has_changed


ODD = st.lists(
    st.sampled_from(
        [
            *(b"\n", b"\r", b"\r\n", b" ", b"\t", b"\0", b"\xef\xbb\xbf", b"\xe9", b'"', b"{"),
            *(
                b"NaN",
                b"-Infinity",
                b'{"id": 1, "prompt": "x"}',
                b'{"a": "\t"}',
                b"\\",
                b",",
                b"[",
                b"}",
            ),
        ]
    ),
    max_size=12,
).map(b"".join)


@settings(max_examples=25)
@given(ODD)
def test_whatever_stands_in_a_file_the_copy_is_its_own_copy(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    tmp_path = tmp_path_factory.mktemp("odd")
    source = written(tmp_path / "in", {"x.jsonl": ROW + content, "y.jsonl": content + ROW})

    fixed = fix(job(source), str(tmp_path / "copy"))

    assert fixed.before_bad_rows is not None
    assert fixed.after.bad_rows <= fixed.before_bad_rows
    check_again(tmp_path, held(tmp_path / "copy"))


def test_the_report_tells_each_file_before_and_after(tmp_path: Path) -> None:
    source = written(
        tmp_path / "in",
        {
            "a.jsonl": codecs.BOM_UTF8 + ROW.replace(b"\n", b"\r\n") + b"\n" + b'{"id": "c',
            "deep/b.jsonl": ROW + OTHER.rstrip(b"\n"),
            "c.jsonl": b'{"id": "c", "prompt": "z"}\n',
            "d.jsonl": b'{"id": "d", "prompt": "caf\xe9"}\n',
            "note.txt": b"x",
        },
    )

    result = call(source, "--fix", tmp_path / "copy", "--prompt", "{prompt}")

    shown = result.stdout.splitlines()
    assert result.exit_code == 4
    assert shown[:5] == [
        f"fix       4 files copied to `{tmp_path / 'copy'}`, 2 of them mended",
        "note      passed over: `.txt` files (1)",
        "  a.jsonl: byte order mark taken off, 1 line end made LF, 1 blank line dropped,"
        " cut last line left out; its cut end (9 bytes) is in `a.jsonl.cut`",
        "  d.jsonl: 1 line is no UTF-8 and was left",
        "  deep/b.jsonl: final newline added, 1 repeated id made unique",
    ]
    assert "input     5 rows in 4 files" in shown
    assert shown[-4].startswith("before    ")
    assert shown[-3].startswith("before    refused: ids repeat")
    assert shown[-2] == "after     1 bad row"
    assert shown[-1] == (
        f"next      rowmill run {tmp_path / 'copy'} --prompt '{{prompt}}' --engine echo -o OUT"
    )
    assert held(tmp_path / "copy")["d.jsonl"] == (source / "d.jsonl").read_bytes()


def test_programs_get_what_check_says_and_the_counts(tmp_path: Path) -> None:
    source = written(tmp_path, {"a.jsonl": codecs.BOM_UTF8 + ROW + ROW}) / "a.jsonl"

    result = call(source, "--fix", tmp_path / "copy", "--json", "-o", tmp_path / "out")

    record = json.loads(result.stdout)
    assert result.exit_code == record["exit_code"] == 0
    assert (record["rows"], record["bad_rows"]) == (2, 0)
    told = record["fix"]
    assert told["folder"] == str(tmp_path / "copy")
    assert (told["before_bad_rows"], told["before_refused"][:11]) == (1, "ids repeat:")
    (file,) = told["files"]
    assert (file["name"], file["copy"], file["encoding"]) == ("a.jsonl", "a.jsonl", "")
    assert {name for name, n in file["mends"].items() if n} == {"boms", "ids"}
    assert told["total"] == file["mends"]
    assert told["next"].endswith(f"-o {tmp_path / 'out'}") or "--output" in told["next"]
    assert not (tmp_path / "out").exists()


def test_text_in_utf16_is_refused_before_and_good_after(tmp_path: Path) -> None:
    source = written(tmp_path, {"a.jsonl": ROW.decode().encode("utf-16")}) / "a.jsonl"

    fixed = fix(job(source), str(tmp_path / "copy"))

    assert fixed.before_bad_rows is None
    assert "is UTF-16 text" in fixed.before_refused
    assert (fixed.exit_code, held(tmp_path / "copy")) == (0, {"a.jsonl": ROW})


def test_repeated_ids_stay_where_the_job_keeps_them(tmp_path: Path) -> None:
    source = written(tmp_path, {"a.jsonl": ROW + ROW}) / "a.jsonl"

    fix(job(source, validate={"duplicate_ids": "keep"}), str(tmp_path / "copy"))

    assert held(tmp_path / "copy") == {"a.jsonl": ROW + ROW}


def test_copies_have_names_that_a_run_over_the_folder_reads(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "in",
        {"rows": ROW, "_x.jsonl": OTHER, "rows.jsonl": b'{"prompt": "1"}\n', ".h/x.jsonl": b""},
    )
    (folder / ".h/x.jsonl").write_bytes(b'{"prompt": "2"}\n')

    fixed = fix(
        job(folder / "rows", folder / "_x.jsonl", folder / "rows.jsonl", folder / ".h/x.jsonl"),
        str(tmp_path / "copy"),
    )

    assert held(tmp_path / "copy") == {
        "rows-2.jsonl": ROW,
        "x-2.jsonl": OTHER,
        "rows.jsonl": b'{"prompt": "1"}\n',
        "x.jsonl": b'{"prompt": "2"}\n',
    }
    assert fixed.after.rows == 4
    assert "  rows: named `rows-2.jsonl`" in list(fixed.lines())


def test_files_of_one_name_keep_the_folders_that_tell_them_apart(tmp_path: Path) -> None:
    folder = written(tmp_path / "in", {"x/a.jsonl": ROW, "y/a.jsonl": OTHER})

    fix(job(folder / "x/a.jsonl", folder / "y/a.jsonl"), str(tmp_path / "copy"))

    assert held(tmp_path / "copy") == {"x/a.jsonl": ROW, "y/a.jsonl": OTHER}


@pytest.mark.parametrize(
    ("partitions", "name"), [("hive", "region=007/k=1/a.jsonl"), ("off", "a.jsonl")]
)
def test_folders_that_are_columns_go_with_the_copy(
    tmp_path: Path, partitions: str, name: str
) -> None:
    folder = written(tmp_path / "in", {"region=007/x/k=1/a.jsonl": ROW}) / "region=007/x/k=1"

    fix(job(folder / "a.jsonl", read={"partitions": partitions}), str(tmp_path / "copy"))

    assert held(tmp_path / "copy") == {name: ROW}


def test_folders_below_the_input_stay_as_they_are(tmp_path: Path) -> None:
    folder = written(tmp_path / "in", {"x/k=1/a.jsonl": ROW})

    fix(job(folder), str(tmp_path / "copy"))

    assert held(tmp_path / "copy") == {"x/k=1/a.jsonl": ROW}


def test_what_is_no_json_lines_is_refused_in_words(tmp_path: Path) -> None:
    array = '[{"prompt": "x"}]'.encode("utf-16")
    folder = written(tmp_path / "in", {"a.jsonl": ROW, "b.json": array})

    result = call(folder, "--fix", tmp_path / "copy")

    assert result.exit_code == 2
    assert "b.json`: holds one JSON array; `--fix` mends JSON Lines alone" in result.stderr
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [({"source": ["-"]}, "standard input"), ({"read": {"format": "csv"}}, "`read.format`")],
)
def test_input_of_another_kind_is_refused(
    tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    source = written(tmp_path, {"a.jsonl": ROW}) / "a.jsonl"

    with pytest.raises(BadSource, match=words):
        fix(Job.model_validate({"source": [str(source)], **more}), str(tmp_path / "copy"))


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("in", "is not empty (`a.jsonl`)"),
        ("in/copy", "lies in the input folder"),
        (".", "is not empty (`full`)"),
        ("full", "is not empty (`x`)"),
        ("full/x", "is a file"),
        ("out", "lie in one another"),
        ("out/copy", "lie in one another"),
    ],
)
def test_a_folder_that_is_not_new_or_not_apart_is_refused(
    tmp_path: Path, place: str, words: str
) -> None:
    written(tmp_path, {"in/a.jsonl": ROW, "full/x": b"x"})
    before = states(tmp_path)

    result = call(tmp_path / "in", "--fix", tmp_path / place, "-o", tmp_path / "out")

    assert result.exit_code == 2
    assert words in result.stderr
    assert states(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "in"]


def test_an_object_store_is_refused(tmp_path: Path) -> None:
    source = written(tmp_path, {"a.jsonl": ROW}) / "a.jsonl"

    result = call(source, "--fix", "memory://x")

    assert result.exit_code == 2
    assert "name one" in result.stderr


@pytest.mark.parametrize("content", [b"\n\n", b'{"id": "a', b"\xef\xbb\xbf", b""])
def test_where_no_row_is_left_nothing_is_written(tmp_path: Path, content: bytes) -> None:
    source = written(tmp_path / "in", {"a.jsonl": content}) / "a.jsonl"

    result = call(source, "--fix", tmp_path / "new/copy")

    assert result.exit_code == 2
    assert "no row is left of 1 file" in result.stderr
    assert not (tmp_path / "new").exists()


def test_after_an_error_nothing_of_the_copy_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"{number}/{number}.jsonl": ROW + b"{" for number in range(5)}
    source, copy = written(tmp_path / "in", names), tmp_path / "copy"
    copy.mkdir()
    finish = _LocalDraft.finish

    def full_disk(draft: _LocalDraft) -> None:
        if draft._path.name == "3.jsonl":
            raise StorageError(path="x", reason="No space left")
        finish(draft)

    monkeypatch.setattr(_LocalDraft, "finish", full_disk)

    result = call(source, "--fix", copy)

    assert result.exit_code == 3
    assert list(copy.iterdir()) == []


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    source, copy = written(tmp_path, {"a.jsonl": ROW}) / "a.jsonl", tmp_path / "copy"
    copy.mkdir()

    assert call(source, "--fix", copy).exit_code == 0
    assert held(copy) == {"a.jsonl": ROW}


def test_a_file_that_can_only_be_read_is_mended_all_the_same(tmp_path: Path) -> None:
    source = written(tmp_path / "in", {"a.jsonl": ROW.strip()}) / "a.jsonl"
    source.chmod(0o444)
    os.utime(source, ns=(1, 1))

    fix(job(source), str(tmp_path / "copy"))

    assert source.stat().st_mtime_ns == 1
    assert held(tmp_path / "copy") == {"a.jsonl": ROW}


def test_many_mended_files_are_summed_up(tmp_path: Path) -> None:
    source = written(tmp_path / "in", {f"{n:02}.jsonl": b'{"prompt": "x"}' for n in range(30)})

    fixed: Fixed = fix(job(source), str(tmp_path / "copy"))

    assert "  and 10 more; in all: 30 final newlines added" in list(fixed.lines())
    assert fixed.total.final_newlines == 30
