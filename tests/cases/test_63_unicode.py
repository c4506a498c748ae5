"""Case 63: every character arrives, is counted and comes back as it was; cut ones are not made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import (
    INPUTS,
    OK,
    SOME_FAILED,
    check_carried,
    check_refused,
    check_whole,
    job,
    rowmill,
    run,
)
from tests.cases.compare import Record, by_id, differences, read_records
from tests.cases.endpoint import Serve
from tests.cases.prompts import SEE_ALL, prompts_of

CASE = INPUTS / "63"
RAW, ESCAPED = CASE / "input.jsonl", CASE / "input_escaped.jsonl"
PROMPTS = {row["id"]: row["prompt"] for row in read_records(RAW)}
EXPECTED = read_records(CASE / "expected.jsonl")
COUNTS = {
    r["id"]: r["prompt_tokens"] for r in read_records(CASE / "expected_token_counts.jsonl")
}
ASCII = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize("source", [RAW, ESCAPED], ids=["raw", "escaped"])
def test_endpoint_is_sent_the_strings_and_they_come_back(
    tmp_path: Path, serve: Serve, source: Path
) -> None:
    endpoint, out = serve(), tmp_path / "out"

    finished = run(source, out, endpoint=endpoint)
    records = check_whole(finished, out, 14)

    assert finished.code == OK
    assert differences(EXPECTED, records) == []
    assert {r["id"]: r["prompt"] for r in records} == PROMPTS
    assert sorted(body["prompt"] for body in endpoint.bodies()) == sorted(PROMPTS.values())
    assert {r["id"]: r["rowmill_prompt_tokens"] for r in records} == COUNTS
    check_carried(source, out)


@pytest.mark.parametrize("source", [RAW, ESCAPED], ids=["raw", "escaped"])
def test_in_process_engine_gets_the_counted_tokens(tmp_path: Path, source: Path) -> None:
    finished = run(source, tmp_path / "out", sets=SEE_ALL)
    records = check_whole(finished, tmp_path / "out", 14)

    assert {r["id"]: r["rowmill_prompt_tokens"] for r in records} == COUNTS
    assert prompts_of(records) == {id_: f"<s>{text}" for id_, text in PROMPTS.items()}


def test_chat_and_template_give_the_same_characters(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve()
    options = ("--prompt", "«{prompt}» 𠮷", "--set", "kind=chat")

    finished = run(ESCAPED, tmp_path / "out", *options, endpoint=endpoint)
    check_whole(finished, tmp_path / "out", 14)

    sent = sorted(body["messages"][0]["content"] for body in endpoint.bodies())
    assert sent == sorted(f"«{text}» 𠮷" for text in PROMPTS.values())


def test_no_word_breaks_a_terminal_that_knows_ascii_alone(tmp_path: Path) -> None:
    rows = [{"id": text, "name": text, "prompt": text} for text in PROMPTS.values()]
    rows.append({"id": "é" * 50, "prompt": "x", "𠮷": None})
    source = tmp_path / "entrée 野家.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    out = tmp_path / "aus \u202e gabe"

    finished = rowmill("run", job(source, out, "--prompt", "{𠮷}{prompt}"), changes=ASCII)

    assert finished.code == SOME_FAILED
    assert finished.stderr.isascii()
    check_whole(finished, out, 15)
    assert rowmill("status", [str(out)], changes=ASCII).code == OK
    for text in PROMPTS.values():
        traced = rowmill("trace", [str(out), text])
        assert traced.told["place"].startswith("entrée 野家.jsonl:")
        break


def test_a_refusal_that_names_such_ids_is_words_under_ascii(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    row = json.dumps({"id": PROMPTS["zwj-family"], "prompt": "x"}, ensure_ascii=False)
    source.write_text(f"{row}\n{row}\n", "utf-8")

    words = check_refused(rowmill("run", job(source, tmp_path / "out"), changes=ASCII))

    assert words.isascii()
    assert "in.jsonl:1, in.jsonl:2" in words


REPEATED = ["👍🏽" * 6, "漢字" * 7, "👨‍👩‍👧‍👦 " * 3, "ที่นี่ที่ไหน " * 3]
"""Prompts that the demo model goes on repeating: its answers are many-byte characters."""
STOP = "字"


@pytest.mark.slow
def test_answer_cut_inside_a_character_has_no_made_up_one(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    rows = [{"prompt": text, "max_tokens": n} for text in REPEATED for n in (1, 2, 3, 4, 5)]
    rows.append({"prompt": REPEATED[1], "max_tokens": 20, "stop": STOP})
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = {"sampling.return_token_ids": True, "sampling.temperature": 0}

    finished = run(source, tmp_path / "out", "--engine", "llamacpp", sets=sets)
    records = check_whole(finished, tmp_path / "out", len(rows))

    assert finished.code == OK
    stopped = records.pop()
    assert stopped["rowmill_finish_reason"] == "stop"
    assert STOP not in stopped["rowmill_text"]
    assert "\ufffd" not in stopped["rowmill_text"]
    for record in records:
        assert len(ids(record)) == record["max_tokens"] == record["rowmill_output_tokens"]
        assert record["rowmill_finish_reason"] == "length"
        assert record["rowmill_text"] == demo_decode(ids(record)).rstrip("\ufffd")
    assert any(demo_decode(ids(record)).endswith("\ufffd") for record in records)


@pytest.mark.slow
def test_no_character_of_the_prompt_gets_into_the_answer(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    cut = [{"id": i, "prompt": text[:1] * 3} for i, text in enumerate(PROMPTS.values())]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in cut))
    sets = {"sampling.max_tokens": 3, "sampling.choices": ["ok"], "sampling.temperature": 0}

    finished = run(source, tmp_path / "out", "--engine", "llamacpp", sets=sets)
    found = by_id(check_whole(finished, tmp_path / "out", 14))

    assert {record["rowmill_text"] for record in found.values()} <= {"o", "ok"}


def ids(record: Record) -> list[int]:
    found: list[int] = record["rowmill_choices"][0]["token_ids"]
    return found


def demo_decode(token_ids: list[int]) -> str:
    from rowmill.config import EngineConfig
    from rowmill.engines import resolve
    from rowmill.tokens import open_tokenizer

    tokenizer: Any = open_tokenizer(resolve(EngineConfig(name="llamacpp")))
    return str(tokenizer.decode(token_ids))
