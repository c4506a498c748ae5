"""Case 22: ids that repeat refuse the job; rows are told apart by place, never by id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.command import INPUTS, check_refused, check_whole, job, rowmill, run, snapshot
from tests.cases.compare import Record
from tests.cases.endpoint import Serve

CASE = INPUTS / "22"
SOURCE = CASE / "input.jsonl"
KEEP = {"validate.duplicate_ids": "keep"}
LIMIT_S = 30


@pytest.mark.parametrize("verb", ["run", "check"])
def test_repeated_ids_are_refused_with_all_their_places(
    tmp_path: Path, serve: Serve, verb: str
) -> None:
    endpoint, out = serve(), tmp_path / "out"

    finished = rowmill(verb, job(SOURCE, out, endpoint=endpoint), limit_s=LIMIT_S)

    words = finished.stderr if verb == "run" else finished.told["refused"]
    assert finished.code == 2
    assert '"a" at input.jsonl:1, input.jsonl:3, input.jsonl:4;' in words
    assert endpoint.hits == 0
    assert not out.exists()


def test_a_repeat_is_found_across_files(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve()

    finished = run(CASE / "two_files", tmp_path / "out", endpoint=endpoint)

    assert '"k2" at one.jsonl:2, two.jsonl:1;' in check_refused(finished, endpoint=endpoint)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> list[Record]:
    folder = tmp_path_factory.mktemp("kept")
    finished = run(SOURCE, folder / "deep/er/out", endpoint=serve(), sets=KEEP)
    records = check_whole(finished, folder / "deep/er/out", 16)
    outside = [name for name in snapshot(folder) if not name.startswith("deep/er/out/")]
    assert outside == ["deep", "deep/er", "deep/er/out"]
    assert not [name for name in snapshot(folder) if "sla" in name or "LLL" in name]
    return records


def test_kept_rows_are_one_record_each_by_place(kept: list[Record]) -> None:
    assert [r["rowmill_row"] for r in kept] == [f"input.jsonl:{n}" for n in range(1, 17)]
    assert [r.get("id") for r in kept].count("a") == 3


def test_no_answer_is_given_to_a_row_with_another_prompt(kept: list[Record]) -> None:
    answered = [r for r in kept if r["rowmill_error"] is None]
    texts = {r["prompt"]: r["rowmill_text"] for r in answered}

    assert len(texts) == 13
    assert len(set(texts.values())) == 13
    assert all(texts[r["prompt"]] == r["rowmill_text"] for r in answered)


def test_lists_and_objects_are_no_ids(kept: list[Record]) -> None:
    failed = [r["rowmill_row"] for r in kept if r["rowmill_error"] is not None]

    assert failed == ["input.jsonl:10", "input.jsonl:11"]
    assert all("`id`" in kept[line - 1]["rowmill_error"] for line in (10, 11))


def test_ids_of_another_type_or_spelling_are_other_ids(kept: list[Record]) -> None:
    assert [kept[7]["id"], kept[8]["id"]] == [1, "1"]
    assert kept[13]["id"] != kept[14]["id"]


def refused_words(tmp_path: Path, lines: list[str], **sets: object) -> str:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(line + "\n" for line in lines))
    finished = run(source, tmp_path / "out", sets=sets)
    return check_refused(finished)


@pytest.mark.parametrize(
    ("lines", "sets"),
    [
        (['{"id": "a", "prompt": "p"}', '{"prompt": "q", "id": "\\u0061"}'], {}),
        (['{"custom_id": "a", "prompt": "p"}', '{"custom_id": "a", "prompt": "q"}'], {}),
        (['{"id": 7, "prompt": "p"}', '{"id":7,"prompt": "q"}'], {}),
        (
            ['{"k": "a", "id": 1, "prompt": "p"}', '{"k": "a", "id": 2, "prompt": "q"}'],
            {"validate.id_column": "k"},
        ),
    ],
    ids=["escaped", "custom_id", "number", "id_column"],
)
def test_repeats_are_found_however_the_id_is_given(
    tmp_path: Path, lines: list[str], sets: dict[str, object]
) -> None:
    words = refused_words(tmp_path, lines, **sets)

    assert "in.jsonl:1, in.jsonl:2" in words


def test_a_repeat_behind_the_first_rows_is_an_error_row(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    ids = ["a", "b", "c", "a", "d", "b"]
    source.write_text("".join(json.dumps({"id": i, "prompt": f"p {i}"}) + "\n" for i in ids))
    sets = {"validate.first_rows": 2, "plan.window_rows": 2}

    finished = run(source, tmp_path / "out", sets=sets)
    records = check_whole(finished, tmp_path / "out", 6)

    failed = [r for r in records if r["rowmill_error"] is not None]
    assert [r["rowmill_row"] for r in failed] == ["in.jsonl:4", "in.jsonl:6"]
    assert [r["rowmill_error"].rpartition(" at ")[2] for r in failed] == [
        "in.jsonl:1",
        "in.jsonl:2",
    ]
