"""Case 20: NaN and Infinity are no JSON: refused in rows, turned to null in answers, never written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.command import INPUTS, OK, check_whole, results, run
from tests.cases.compare import by_id, differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "20"
SOURCE = CASE / "input.jsonl"
LITERALS = {2: "NaN", 3: "Infinity", 4: "-Infinity", 5: "nan"}


@pytest.mark.parametrize("engine", ["http", "echo"])
def test_rows_with_such_literals_are_errors_that_name_them(
    tmp_path: Path, serve: Serve, engine: str
) -> None:
    endpoint = serve() if engine == "http" else None

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", 9)

    failed = {r["rowmill_row"]: r["rowmill_error"] for r in records if r["rowmill_error"]}
    assert failed.keys() == {f"input.jsonl:{line}" for line in LITERALS}
    for line, literal in LITERALS.items():
        assert f"`{literal}`" in failed[f"input.jsonl:{line}"]
    if endpoint is not None:
        assert by_id(records)["text"]["rowmill_text"] == "A:d5b592c05dc2"
        assert endpoint.hits == 5


def test_odd_numbers_are_carried_as_they_stand(tmp_path: Path) -> None:
    finished = run(SOURCE, tmp_path / "out")
    check_whole(finished, tmp_path / "out", 9)

    written = (tmp_path / "out/results/part-00000.jsonl").read_bytes()
    for text in (b'"score": 1e999', b'"score": -0.0', b'"score": 0.1234567890123456789'):
        assert written.count(text) == 1


def test_minus_infinity_in_an_answer_becomes_null(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve(plan=CASE / "plan.json")

    finished = run(
        CASE / "neginf.jsonl",
        tmp_path / "out",
        endpoint=endpoint,
        sets={"sampling.logprobs": 1},
    )
    records = check_whole(finished, tmp_path / "out", 2)

    assert finished.code == OK
    assert differences(read_records(CASE / "expected_neginf.jsonl"), records) == []
    ((choice,), _) = (record["rowmill_choices"] for record in records)
    assert [position["logprob"] for position in choice["logprobs"]] == [None]
    assert endpoint.stats["most_for_one_body"] == 1


ROWS = {
    'k1", "prompt": NaN': "unreadable",
    'k2", "prompt": "a", "x": {"y": [[Infinity]]}': "unreadable",
    'k3", "prompt": "a", "temperature": NaN': "unreadable",
    'k4", "prompt": "a", "temperature": 1e999': "invalid",
    'k5", "prompt": "a", "max_tokens": Infinity': "unreadable",
    'k6", "prompt": "a", "x": -NaN': "unreadable",
    'k7", "prompt": "a", "NaN": "Infinity"': None,
    'k8", "prompt": "NaN, -Infinity", "x": "\\"NaN"': None,
    'k9", "prompt": "a", "x": -1e999': None,
}


def test_such_literals_are_found_in_any_field(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"id": "{row}}}\n' for row in ROWS))

    finished = run(source, tmp_path / "out")
    check_whole(finished, tmp_path / "out", len(ROWS))

    kinds = [record["rowmill_error_kind"] for record in results(tmp_path / "out")]
    assert kinds == list(ROWS.values())
