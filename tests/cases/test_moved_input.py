"""Input that was moved since: found where it is now, by whatever command, or refused with what to do."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cases.command import (
    OK,
    SOME_FAILED,
    check_refused,
    exported,
    job,
    results,
    rowmill,
    run,
)

FAULT = {"engine.faults": '[{contains = "bad", action = "error"}]'}


def lines(*prompts: str) -> bytes:
    return b"".join(b'{"prompt": "%b"}\n' % prompt.encode() for prompt in prompts)


def places(records: list[dict[str, object]]) -> list[object]:
    return [record["rowmill_row"] for record in records]


@pytest.mark.parametrize("new", ["moved/rows.jsonl", "rows-of-may.jsonl"])
def test_a_run_knows_where_its_input_went_once_it_was_told(tmp_path: Path, new: str) -> None:
    old, out, now = tmp_path / "rows.jsonl", tmp_path / "out", tmp_path / new
    old.write_bytes(lines("a", "bad", "c"))
    assert run(old, out, sets=FAULT).code == SOME_FAILED
    now.parent.mkdir(exist_ok=True)
    old.rename(now)

    for verb, more in (("export", ["-o", str(tmp_path / "all.jsonl")]), ("retry", [])):
        told = check_refused(rowmill(verb, [str(out), *more]))
        assert "`rows.jsonl` (gone)" in told
        assert "give the command of the run with" in told
    assert run(now, out, sets=FAULT).code == SOME_FAILED

    assert places(exported(out, tmp_path / "all.jsonl")) == [
        f"rows.jsonl:{n}" for n in (1, 2, 3)
    ]
    retried = rowmill("retry", [str(out), "--set", "engine.faults=[]"])
    assert (retried.code, retried.told["asked"]) == (OK, 1), retried.stderr
    assert [record["prompt"] for record in results(out)] == ["a", "bad", "c"]
    now.rename(old)
    assert run(old, out, sets=FAULT).code == OK
    assert len(exported(out, tmp_path / "all.jsonl")) == 3


def test_a_retry_may_be_told_the_new_place_itself(tmp_path: Path) -> None:
    old, out, now = tmp_path / "rows.jsonl", tmp_path / "out", tmp_path / "now.jsonl"
    old.write_bytes(lines("a", "bad"))
    run(old, out, sets=FAULT)
    old.rename(now)
    sets = ["--set", "engine.faults=[]", "--set", f"source={json.dumps([str(now)])}"]

    retried = rowmill("retry", [str(out), *sets])

    assert (retried.code, retried.told["asked"]) == (OK, 1), retried.stderr
    assert len(exported(out, tmp_path / "all.jsonl")) == 2


def test_files_that_changed_places_are_never_read_for_each_other(tmp_path: Path) -> None:
    a, b, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "out"
    a.write_bytes(lines("a1", "a2"))
    b.write_bytes(lines("b1", "b2"))
    assert run([a, b], out).code == OK
    a.rename(tmp_path / "c")
    b.rename(a)
    (tmp_path / "c").rename(b)

    for verb, arguments in (
        ("run", job([a, b], out)),
        ("export", [str(out), "-o", str(tmp_path / "all.jsonl")]),
        ("retry", [str(out)]),
    ):
        told = check_refused(rowmill(verb, arguments))
        assert "`a.jsonl` (changed), `b.jsonl` (changed)" in told


def test_a_renamed_file_is_known_beside_a_new_one_of_its_name(tmp_path: Path) -> None:
    old, out = tmp_path / "x/a.jsonl", tmp_path / "out"
    moved, new = tmp_path / "x/b.jsonl", tmp_path / "y/a.jsonl"
    for folder in (old.parent, new.parent):
        folder.mkdir()
    old.write_bytes(lines("a1", "a2"))
    assert run(old, out).code == OK
    old.rename(moved)
    new.write_bytes(lines("n1", "n2"))

    joined = run([moved, new], out, "--append")

    assert (joined.code, joined.told["asked"]) == (OK, 2), joined.stderr
    assert [record["rowmill_row"] for record in results(out)] == [
        *("a.jsonl:1", "a.jsonl:2"),
        *("y/a.jsonl:1", "y/a.jsonl:2"),
    ]


def test_files_that_are_in_their_places_are_to_be_named(tmp_path: Path) -> None:
    a, b, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "out"
    a.write_bytes(lines("a"))
    b.write_bytes(lines("a"))
    assert run(a, out).code == OK

    told = check_refused(run(b, out))

    assert "`a.jsonl` (not named), `b.jsonl` (added); name all files of the run" in told
    a.unlink()
    assert run(b, out).code == OK


def test_a_packed_file_that_joined_from_a_folder_with_columns_is_unpacked_again(
    tmp_path: Path,
) -> None:
    first, out = tmp_path / "first.jsonl", tmp_path / "out"
    joined = tmp_path / "region=1/x.jsonl.gz"
    first.write_bytes(lines("a"))
    joined.parent.mkdir()
    joined.write_bytes(gzip.compress(lines("b", "c")))
    assert run(first, out).code == OK
    assert run(joined, out, "--append").code == OK
    for path in (out / "spool").iterdir():
        path.unlink()

    assert run(first, out, sets={"output.order": "completion"}).code == OK
    assert [record.get("region") for record in results(out)] == [None, "1", "1"]
