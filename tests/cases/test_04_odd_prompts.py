"""Case 04: empty, null and wrongly typed prompts are row errors that say what was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import INPUTS, check_whole, run
from tests.cases.compare import by_id, differences, id_of, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "04"
SOURCE = CASE / "input.jsonl"
EXPECTED = read_records(CASE / "expected.jsonl")
FAULTS = {
    "empty": ("`prompt`", "an empty string"),
    "null": ("`prompt`", "null"),
    "absent": ("`prompt`", "missing"),
    "number": ("`prompt`", "a number"),
    "bool": ("`prompt`", "a boolean"),
    "dict": ("`prompt`", "an object"),
    "list-empty": ("`prompt`", "an empty list"),
    "list-mixed": ("`prompt", "string"),
    "list-of-str": ("`prompt", "string"),
    "msgs-empty": ("`messages`", "an empty list"),
    "msgs-null": ("`messages`", "null"),
    "msgs-string": ("`messages`", "a string"),
    "both": ("`prompt` and `messages`", "one of them"),
}


@pytest.mark.parametrize("engine", ["http", "echo"])
def test_each_fault_is_a_row_error_that_names_field_and_finding(
    tmp_path: Path, serve: Serve, engine: str
) -> None:
    endpoint = serve() if engine == "http" else None
    sets = {"sampling.max_tokens": 20}

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint, sets=sets)
    records = check_whole(finished, tmp_path / "out", 20)

    expected = EXPECTED if endpoint else [{**r, "text": texts(records)} for r in EXPECTED]
    assert differences(expected, records) == []
    found = by_id(records)
    failed = {id_ for id_, record in found.items() if record["rowmill_error"] is not None}
    assert failed == FAULTS.keys()
    for id_, (field, finding) in FAULTS.items():
        assert field in found[id_]["rowmill_error"]
        assert finding in found[id_]["rowmill_error"]


def texts(records: list[dict[str, Any]]) -> list[Any]:
    """All texts there are: an echo's are not those of the endpoint."""
    return [record["rowmill_text"] for record in records]


def test_what_is_sent_is_what_stood_in_the_row(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve()

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint)
    check_whole(finished, tmp_path / "out", 20)

    bodies = endpoint.bodies()
    prompts = [body["prompt"] for body in bodies if "prompt" in body]
    spaces = ["   ", "\n", "\u200b"]
    assert sorted(map(str, prompts)) == sorted(
        map(str, ["before", *spaces, [0, 109, 110], "after"])
    )
    assert [body["messages"] for body in bodies if "messages" in body] == [
        [{"role": "user", "content": "hello"}]
    ]


def test_columns_of_a_template_are_held_to_the_same_rule(tmp_path: Path) -> None:
    rows = [
        {"id": "ok", "text": "x"},
        {"id": "null", "text": None},
        {"id": "absent"},
        {"id": "empty", "text": ""},
        {"id": "space", "text": " "},
        {"id": "other", "prompt": "x"},
        {"id": "last", "text": "None"},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    finished = run(source, tmp_path / "out", "--prompt", "{text}")
    found = by_id(check_whole(finished, tmp_path / "out", len(rows)))

    failed = [id_ for id_, record in found.items() if record["rowmill_error"] is not None]
    assert failed == ["null", "absent", "empty", "other"]
    assert all("`text`" in found[id_]["rowmill_error"] for id_ in failed)


def test_a_conversation_under_another_name_is_held_to_the_same_rule(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "talk": [{"role": "user", "content": "hello"}]},
        {"id": 2, "talk": None},
        {"id": 3, "talk": []},
        {"id": 4, "talk": {"role": "user", "content": "hello"}},
        {"id": 5, "talk": [{"role": "user", "content": None}]},
        {"id": 6, "talk": [{"role": "user"}]},
        {"id": 7, "talk": [["user", "hello"]]},
        {"id": 8, "talk": [{"role": "user", "content": 3}]},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    finished = run(source, tmp_path / "out", sets={"messages": "talk"})
    records = check_whole(finished, tmp_path / "out", len(rows))

    failed = [record for record in records if record["rowmill_error"] is not None]
    assert [id_of(record) for record in failed] == [2, 3, 4, 5, 6, 7, 8]
    assert all("`talk" in record["rowmill_error"] for record in failed)
