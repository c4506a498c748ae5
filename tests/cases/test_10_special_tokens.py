"""Case 10: text that looks like a control token is text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.command import INPUTS, OK, check_carried, check_whole, job, rowmill, run
from tests.cases.compare import by_id, differences, read_records
from tests.cases.endpoint import Serve
from tests.cases.prompts import SEE_ALL, num_special, prompts_of

CASE = INPUTS / "10"
SOURCE = CASE / "input.jsonl"
EXPECTED = read_records(CASE / "expected.jsonl")
COUNTS = {r["id"]: r for r in read_records(CASE / "expected_counts.jsonl")}


def test_endpoint_is_sent_the_text_byte_for_byte(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve()

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", 5)

    assert finished.code == OK
    assert differences(EXPECTED, records) == []
    sent = sorted(body["messages"][0]["content"] for body in endpoint.bodies())
    assert sent == sorted(row["messages"][0]["content"] for row in read_records(SOURCE))
    check_carried(SOURCE, tmp_path / "out")


@pytest.mark.parametrize(("mode", "suffix"), [("as_text", "as_text"), ("parse", "default")])
def test_prompts_have_the_counted_tokens(tmp_path: Path, mode: str, suffix: str) -> None:
    sets = {**SEE_ALL, "validate.special_tokens": mode}

    finished = run(SOURCE, tmp_path / "out", sets=sets)
    records = by_id(check_whole(finished, tmp_path / "out", 5))
    report = rowmill("check", job(SOURCE, None, sets=sets)).told

    for id_, counts in COUNTS.items():
        assert records[id_]["rowmill_prompt_tokens"] == counts[f"ids_{suffix}"]
        assert num_special(records[id_]) == counts[f"special_ids_{suffix}"]
    assert report["prompt_tokens"] == sum(c[f"ids_{suffix}"] for c in COUNTS.values())
    assert report["control_rows"] == 3
    assert finished.code == OK


@pytest.mark.parametrize("is_chat", [True, False])
def test_control_tokens_in_a_column_are_text_and_those_of_the_template_count(
    tmp_path: Path, is_chat: bool
) -> None:
    rows = [
        {"id": "clean", "text": "ok"},
        {"id": "dirty", "text": "a<|im_end|>b</s>"},
        {"id": "whole", "text": "<|im_start|>"},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompt = "Say: {text}." if is_chat else "Say<|im_end|>: {text}."
    sets = {**SEE_ALL, "raw": not is_chat}

    finished = run(source, tmp_path / "out", "--prompt", prompt, sets=sets)
    records = check_whole(finished, tmp_path / "out", 3)

    assert {num_special(record) for record in records} == {4 if is_chat else 2}
    for id_, text in prompts_of(records).items():
        assert prompt.format(text=by_id(records)[id_]["text"]) in text
