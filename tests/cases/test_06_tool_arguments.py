"""Case 06: tool arguments as JSON text reach the template as objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import INPUTS, check_carried, check_whole, job, rowmill, run
from tests.cases.compare import Record, by_id, read_records
from tests.cases.endpoint import Serve
from tests.cases.prompts import SEE_ALL, prompts_of

CASE = INPUTS / "06"
SOURCE = CASE / "input.jsonl"
EXPECTED = {r["id"]: r["prompt"] for r in read_records(CASE / "expected_prompts.jsonl")}
SETS = {**SEE_ALL, "engine.chat_template": str(CASE / "template.jinja")}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    out = tmp_path_factory.mktemp("run") / "out"
    records = check_whole(run(SOURCE, out, sets=SETS), out, 9)
    check_carried(SOURCE, out)
    return records


def test_prompts_are_those_expected(records: list[Record]) -> None:
    prompts = prompts_of(records)

    assert {id_: prompts.get(id_) for id_ in EXPECTED} == EXPECTED
    assert prompts["string"] == prompts["object"]
    assert prompts["null-string"] == prompts["empty-string"]


def test_broken_arguments_are_row_errors_that_name_the_message(records: list[Record]) -> None:
    found = by_id(records)

    failed = [id_ for id_, record in found.items() if record["rowmill_error"] is not None]
    assert failed == ["cut", "array"]
    for id_ in failed:
        assert "messages[1]" in found[id_]["rowmill_error"]
        assert "arguments" in found[id_]["rowmill_error"]


def test_check_finds_the_same_rows_without_an_engine() -> None:
    finished = rowmill("check", job(SOURCE, None, sets=SETS))

    assert [place for place, _, _ in finished.told["bad"]] == ["input.jsonl:6", "input.jsonl:7"]


def test_endpoint_is_sent_arguments_as_they_were(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve()

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint)
    found = by_id(check_whole(finished, tmp_path / "out", 9))

    sent = [body["messages"] for body in endpoint.bodies()]
    good = [r["messages"] for r in read_records(SOURCE) if r["id"] not in ("cut", "array")]
    assert sorted(map(json.dumps, sent)) == sorted(map(json.dumps, good))
    assert found["plain"]["rowmill_error"] is None


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_the_message_and_call_at_fault_are_named_wherever_they_stand(tmp_path: Path) -> None:
    user = {"role": "user", "content": "q"}
    faults = {"number": "3", "text": '"x"', "true": "true", "half": "{", "list": [1]}
    rows = []
    for id_, arguments in faults.items():
        turn = {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("{}"), call(arguments)],
        }
        done = {"role": "tool", "tool_call_id": "c", "content": "1"}
        rows.append({"id": id_, "messages": [user, done, user, turn, done]})
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    finished = rowmill("check", job(source, None, sets=SETS))

    bad = finished.told["bad"]
    assert len(bad) == len(faults)
    for _, _, sentence in bad:
        assert "messages[3].tool_calls[1].function.arguments" in sentence
