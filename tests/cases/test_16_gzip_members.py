"""Case 16: every member of a gzip file is read; one that is cut or damaged is refused by name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cases.command import OK, check_refused, check_whole, run
from tests.cases.endpoint import Serve


def row(id_: str) -> bytes:
    return json.dumps({"id": id_, "prompt": f"text {id_}"}).encode() + b"\n"


def packed(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def members() -> bytes:
    return b"".join(packed(b"".join(row(f"m{k}-{i}") for i in range(10))) for k in range(3))


def split_inside_a_line() -> bytes:
    text = b"".join(row(f"s{i}") for i in range(12))
    return packed(text[:137]) + packed(b"") + packed(text[137:])


def cut() -> bytes:
    whole = packed(b"".join(row(f"c{i:04d}") for i in range(2000)))
    return whole[: len(whole) // 2]


def bad_crc() -> bytes:
    damaged = bytearray(packed(b"".join(row(f"x{i}") for i in range(50))))
    damaged[-6] ^= 0xFF
    return bytes(damaged)


READ = {
    "members.jsonl.gz": (members(), [f"m{k}-{i}" for k in range(3) for i in range(10)]),
    "split-inside-a-line.jsonl.gz": (split_inside_a_line(), [f"s{i}" for i in range(12)]),
    "plain-named.jsonl.gz": (row("plain"), ["plain"]),
    "gz-without-suffix.jsonl": (packed(row("nosuffix")), ["nosuffix"]),
    "garbage-after.jsonl.gz": (packed(row("ga")) + b"\0" * 512, ["ga"]),
}


@pytest.mark.parametrize(
    "name",
    [
        name if name.startswith("split") else pytest.param(name, marks=pytest.mark.slow)
        for name in READ
    ],
)
def test_all_rows_of_all_members_are_answered(tmp_path: Path, serve: Serve, name: str) -> None:
    content, ids = READ[name]
    (tmp_path / name).write_bytes(content)
    endpoint = serve()

    finished = run(tmp_path / name, tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", len(ids))

    assert finished.code == OK
    assert [record["id"] for record in records] == ids
    assert [record["prompt"] for record in records] == [f"text {id_}" for id_ in ids]
    assert endpoint.hits == len(ids)
    assert records[-1]["rowmill_row"] == f"{name}:{len(ids)}"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [("cut.jsonl.gz", cut(), "ends early"), ("bad-crc.jsonl.gz", bad_crc(), "checksum")],
)
def test_a_damaged_file_is_refused_by_name_and_none_of_it_asked(
    tmp_path: Path, serve: Serve, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    endpoint, out = serve(), tmp_path / "out"

    words = check_refused(run(tmp_path / name, out, endpoint=endpoint), endpoint=endpoint)

    assert name in words
    assert said in words
    assert not out.exists()


def test_all_of_them_are_one_folder_of_rows(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, (content, _) in READ.items():
        (folder / name).write_bytes(content)

    finished = run(folder, tmp_path / "out")
    records = check_whole(finished, tmp_path / "out", 45)

    assert finished.code == OK
    assert sorted(r["id"] for r in records) == sorted(
        i for _, ids in READ.values() for i in ids
    )


def test_a_damaged_file_among_whole_ones_refuses_them_all(tmp_path: Path, serve: Serve) -> None:
    folder, endpoint = tmp_path / "in", serve()
    folder.mkdir()
    for name, (content, _) in READ.items():
        (folder / name).write_bytes(content)
    (folder / "cut.jsonl.gz").write_bytes(cut())
    (folder / "bad-crc.jsonl.gz").write_bytes(bad_crc())

    words = check_refused(run(folder, tmp_path / "out", endpoint=endpoint), endpoint=endpoint)

    assert "cut.jsonl.gz" in words
    assert "bad-crc.jsonl.gz" in words
