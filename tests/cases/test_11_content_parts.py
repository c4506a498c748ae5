"""Case 11: lists of text parts become one text; other parts are row errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.command import INPUTS, check_carried, check_whole, job, rowmill, run
from tests.cases.compare import Record, by_id, read_records
from tests.cases.endpoint import Serve
from tests.cases.prompts import SEE_ALL, prompts_of

CASE = INPUTS / "11"
SOURCE = CASE / "input.jsonl"
EXPECTED = {r["id"]: r["prompt"] for r in read_records(CASE / "expected_prompts.jsonl")}
SETS = {**SEE_ALL, "engine.chat_template": str(CASE / "template.jinja")}
FAULTS = {
    "empty-list": "an empty list",
    "unknown-part": "`video`",
    "bare-strings": "a string",
    "image-part": "`image_url`",
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    out = tmp_path_factory.mktemp("run") / "out"
    records = check_whole(run(SOURCE, out, sets=SETS), out, 8)
    check_carried(SOURCE, out)
    return records


def test_text_parts_are_joined_by_one_newline(records: list[Record]) -> None:
    assert prompts_of(records) == EXPECTED


def test_other_parts_are_row_errors_that_name_message_and_type(records: list[Record]) -> None:
    found = by_id(records)

    assert {i for i, r in found.items() if r["rowmill_error"] is not None} == FAULTS.keys()
    for id_, finding in FAULTS.items():
        assert "messages[0]" in found[id_]["rowmill_error"]
        assert finding in found[id_]["rowmill_error"]


def test_endpoint_is_sent_text_parts_as_they_were(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve()

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", 8)

    good = [row["messages"] for row in read_records(SOURCE) if row["id"] in EXPECTED]
    sent = [body["messages"] for body in endpoint.bodies()]
    assert sorted(map(json.dumps, sent)) == sorted(map(json.dumps, good))
    answered = [record["id"] for record in records if record["rowmill_error"] is None]
    assert answered == list(EXPECTED)


def test_parts_are_read_in_every_role_and_place(tmp_path: Path) -> None:
    text = {"type": "text", "text": "t"}
    wrong = {"no text": {"type": "text"}, "text null": {"type": "text", "text": None}}
    wrong |= {"no type": {"text": "t"}, "audio": {"type": "input_audio", "input_audio": {}}}
    rows = [
        {
            "id": id_,
            "messages": [
                {"role": "system", "content": [text, text]},
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": [text, part]},
                {"role": "user", "content": "q"},
            ],
        }
        for id_, part in wrong.items()
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    finished = rowmill("check", job(source, None, sets=SETS))

    bad = finished.told["bad"]
    assert len(bad) == len(wrong)
    assert all("messages[2].content[1]" in sentence for _, _, sentence in bad)
