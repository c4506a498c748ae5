"""Case 15: a cut line, or one that is no object, is one error row; the lines after it are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.command import INPUTS, OK, SOME_FAILED, check_refused, check_whole, run
from tests.cases.compare import by_id, differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "15"
SOURCE = CASE / "input.jsonl"
EXPECTED = read_records(CASE / "expected.jsonl")
BAD_LINES = [*range(2, 11), 14]


def test_four_answers_and_ten_errors_with_their_lines(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve()

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", 14)

    assert finished.code == SOME_FAILED
    assert differences(EXPECTED, records) == []
    failed = [r["rowmill_row"] for r in records if r["rowmill_error"] is not None]
    assert failed == [f"input.jsonl:{line}" for line in BAD_LINES]
    errors = {r["rowmill_row"].rpartition(":")[2]: r["rowmill_error"] for r in records}
    assert "UTF-8" in errors["14"]
    assert "`prompt` is missing" in errors["6"]
    assert "behind the JSON value" in errors["8"]
    assert endpoint.hits == 4


def test_last_line_without_newline_is_a_row(tmp_path: Path, serve: Serve) -> None:
    finished = run(CASE / "valid-no-newline.jsonl", tmp_path / "out", endpoint=serve())
    records = check_whole(finished, tmp_path / "out", 2)

    assert finished.code == OK
    assert [record["id"] for record in records] == ["p1", "p2"]


@pytest.mark.parametrize("engine", ["http", "echo"])
def test_strict_mode_refuses_before_sending(tmp_path: Path, serve: Serve, engine: str) -> None:
    endpoint = serve() if engine == "http" else None
    out = tmp_path / "out"

    finished = run(SOURCE, out, endpoint=endpoint, sets={"validate.strict": True})

    words = check_refused(finished, endpoint=endpoint)
    assert "input.jsonl:2" in words
    assert "10" in words
    assert not out.exists()


CUTS = {
    "key": b'{"id": "x", "pro',
    "colon": b'{"id": "x", "prompt":',
    "string": b'{"id": "x", "prompt": "abc',
    "escape": b'{"id": "x", "prompt": "abc\\',
    "unicode": b'{"id": "x", "prompt": "abc\\u00e',
    "utf8": '{"id": "x", "prompt": "日'.encode()[:-1],
    "number": b'{"id": "x", "prompt": "abc", "k": 1',
    "brace": b'{"id": "x", "prompt": "abc"',
}


def test_a_cut_at_any_place_costs_one_row_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, cut in CUTS.items():
        (folder / f"{name}.jsonl").write_bytes(
            b'{"id": "%b", "prompt": "p"}\n' % name.encode() + cut
        )

    finished = run(folder, tmp_path / "out")
    records = by_id(check_whole(finished, tmp_path / "out", 2 * len(CUTS)))

    for name in CUTS:
        assert records[name]["rowmill_error"] is None
        assert records[f"{name}.jsonl:2"]["rowmill_error_kind"] == "unreadable"
        words = "UTF-8" if name == "utf8" else "no JSON"
        assert words in records[f"{name}.jsonl:2"]["rowmill_error"]
