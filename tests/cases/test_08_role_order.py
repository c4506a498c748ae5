"""Case 08: what a template refuses is a row error in the template's own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.command import INPUTS, SOME_FAILED, check_whole, job, rowmill, run
from tests.cases.compare import Record, differences, read_records
from tests.cases.endpoint import Serve
from tests.cases.prompts import SEE_ALL, prompts_of

CASE = INPUTS / "08"
SOURCE = CASE / "input.jsonl"
EXPECTED = read_records(CASE / "expected.jsonl")
SETS = {**SEE_ALL, "engine.chat_template": str(CASE / "template.jinja")}
REFUSED_ROWS = {r["id"] for r in EXPECTED if r["outcome"] == "error"}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    out = tmp_path_factory.mktemp("run") / "out"
    return check_whole(run(SOURCE, out, sets=SETS), out, 12)


def test_rows_that_the_template_refuses_fail_in_its_own_words(records: list[Record]) -> None:
    expected = [{k: v for k, v in record.items() if k != "text"} for record in EXPECTED]

    assert differences(expected, records) == []


def test_no_message_is_dropped_merged_or_moved(records: list[Record]) -> None:
    head, foot = "<|im_start|>{}\n", "<|im_end|>\n"
    user, answer = head.format("user"), head.format("assistant")

    assert prompts_of(records) == {
        "good": f"<s>{user}q{foot}{answer}",
        "good-3": f"<s>{user}q{foot}{answer}a{foot}{user}q2{foot}{answer}",
        "good-last": f"<s>{user}z{foot}{answer}",
        "ends-with-assistant": f"<s>{user}q{foot}{answer}The answer is",
    }


def test_check_finds_all_eight_without_an_engine() -> None:
    finished = rowmill("check", job(SOURCE, None, sets=SETS))

    rows = read_records(SOURCE)
    lines = [int(place.rpartition(":")[2]) for place, _, _ in finished.told["bad"]]
    assert finished.code == SOME_FAILED
    assert {rows[line - 1]["id"] for line in lines} == REFUSED_ROWS


def test_endpoint_is_sent_every_message_as_it_stood(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve()

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint)
    check_whole(finished, tmp_path / "out", 12)

    sent = sorted(json.dumps(body["messages"]) for body in endpoint.bodies())
    wrong = ("bad-role", "upper-role", "no-role")
    rows = [row["messages"] for row in read_records(SOURCE) if row["id"] not in wrong]
    assert sent == sorted(map(json.dumps, rows))


def test_a_system_text_of_the_job_is_not_folded_away(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": 1, "q": "x"}\n{"id": 2, "q": "y"}\n')
    sets = {**SETS, "system": "be brief"}

    finished = rowmill("check", job(source, None, "--prompt", "{q}", sets=sets))

    sentences = [sentence for _, _, sentence in finished.told["bad"]]
    assert len(sentences) == 2
    assert all("no system role" in sentence for sentence in sentences)
