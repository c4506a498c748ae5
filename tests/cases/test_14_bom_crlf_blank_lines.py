"""Case 14: a byte order mark, CRLF, blank lines and a missing final newline cost no row and change none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.command import INPUTS, OK, SOME_FAILED, STOPPED, check_whole, rowmill, run
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "14"
EXPECTED = read_records(CASE / "expected.jsonl")
IDS = ["a1", "a2", "b1", "b2", "b3", "c1", "c2"]
BAD = "b-bom-crlf-blank.jsonl:7"


@pytest.mark.parametrize("format_", ["jsonl", pytest.param("parquet", marks=pytest.mark.slow)])
def test_seven_answers_and_one_error_at_its_line(
    tmp_path: Path, serve: Serve, format_: str
) -> None:
    endpoint = serve()

    finished = run(
        CASE / "in", tmp_path / "out", endpoint=endpoint, sets={"output.format": format_}
    )
    records = check_whole(finished, tmp_path / "out", 8)

    assert finished.code == SOME_FAILED
    assert differences(EXPECTED, records) == []
    good = [record for record in records if record["rowmill_row"] != BAD]
    assert [record["id"] for record in good] == IDS
    assert {name for record in records for name in record if "\ufeff" in name} == set()
    sent = sorted(body["prompt"] for body in endpoint.bodies())
    assert sent == sorted(f"Text of {id_} äöü" for id_ in IDS)


@pytest.mark.parametrize("name", ["d-only-bom.jsonl", "e-only-blank.jsonl"])
def test_a_file_without_a_row_is_no_error(tmp_path: Path, serve: Serve, name: str) -> None:
    endpoint = serve()

    finished = run(CASE / "in" / name, tmp_path / "out", endpoint=endpoint)

    assert check_whole(finished, tmp_path / "out", 0) == []
    assert finished.code == OK
    assert endpoint.hits == 0
    assert finished.told["engine_start_s"] == 0


def test_the_same_habits_change_nothing_in_csv(tmp_path: Path, serve: Serve) -> None:
    text = '\ufeffid,prompt\r\n\r\na1,Text of a1 äöü\r\n\r\na2,"Text of a2 äöü"'
    source = tmp_path / "windows.csv"
    source.write_bytes(text.encode())

    finished = run(source, tmp_path / "out", endpoint=serve())
    records = check_whole(finished, tmp_path / "out", 2)

    assert differences(EXPECTED[:2], records) == []
    assert [record["rowmill_row"] for record in records] == ["windows.csv:3", "windows.csv:5"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.jsonl", '{"prompt": "a"}\n\n{"prompt": "b"}\n\n'), ("a.csv", "prompt\na\n\nb\n\n")],
)
def test_blank_lines_of_tasks_that_are_done_are_no_rows_that_are_left(
    tmp_path: Path, name: str, text: str
) -> None:
    source, more, out = tmp_path / name, tmp_path / "more.jsonl", tmp_path / "out"
    source.write_text(text)
    more.write_text('{"prompt": "c"}\n{"prompt": "d"}\n')
    check_whole(run(source, out), out, 2)

    exported = rowmill("export", [str(out), "-o", str(tmp_path / "all.jsonl")]).told
    stopped = run(more, out, "--append", sets={"run.max_total_tokens": 1})
    status = rowmill("status", [str(out)]).told
    half = rowmill("export", [str(out), "-o", str(tmp_path / "half.jsonl")]).told

    assert exported["written"] == {"rows": 2, "not_done": 0}
    assert stopped.code == STOPPED
    for told in (stopped.told, status):
        assert (told["total"], told["not_done"]) == (4, 2)
    assert half["written"] == {"rows": 2, "not_done": 2}
