"""Answers judged behind every engine, from a job to its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rowmill
from rowmill.engines.judging import Judge
from rowmill.events import Summary
from rowmill.executors.local import retry
from rowmill.progress import summary_lines
from rowmill.report import status, trace
from rowmill.rows import NULL, Choice, Outcome, Sampling
from tests.engines.rows_of import byte_prompts

SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
HELD = Sampling(schema=json.dumps(SCHEMA))


def ok(key: int, text: str, **fields: Any) -> Outcome:
    return Outcome(key=key, status="ok", text=text, finish_reason="stop", **fields)


def test_rows_without_a_rule_are_given_on_as_they_are() -> None:
    judge = Judge()
    judge.expect(byte_prompts(["a", "b"]))
    outcomes = [ok(0, "a"), ok(1, "b")]

    assert judge.judged(outcomes) is outcomes


def test_each_row_is_judged_by_its_own_rule() -> None:
    judge = Judge()
    samplings = [Sampling(), HELD, Sampling(choices=("x",)), Sampling(regex="x+")]
    judge.expect(byte_prompts(["a", "b", "c", "d"], sampling=samplings))

    found = judge.judged([ok(3, "y"), ok(2, "x"), ok(1, '{"age": 1}'), ok(0, "free")])

    assert [(bytes(o.parsed), o.violation is None) for o in found] == [
        (b"null", False),
        (b"null", True),
        (b'{"age":1}', True),
        (b"null", True),
    ]


def test_every_choice_is_judged() -> None:
    judge = Judge()
    judge.expect(byte_prompts(["a"], sampling=[HELD]))
    choices = [Choice(0, '{"age": 1}'), Choice(1, "{}")]

    (found,) = judge.judged([ok(0, '{"age": 1}', choices=choices)])

    assert (bytes(found.parsed), found.violation) == (b'{"age":1}', None)
    assert [bytes(c.parsed) for c in found.choices] == [b'{"age":1}', b"null"]
    assert (
        found.choices[1].violation == "answer: an object without `age`, expected that property"
    )


def test_failed_rows_and_tool_calls_are_not_judged() -> None:
    judge = Judge()
    judge.expect(byte_prompts(["a", "b"], sampling=[HELD]))
    failed = Outcome(key=0, status="error", error_kind="refused", error="no")
    calls = Outcome(key=1, status="ok", text='[{"id": 1}]', finish_reason="tool_calls")

    assert [o.violation for o in judge.judged([failed, calls])] == [None, None]


def job(tmp_path: Path, rows: list[dict[str, Any]], **sampling: Any) -> rowmill.Job:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rowmill.Job(
        source=str(source),
        output=str(tmp_path / "out"),
        engine={"name": "echo"},
        sampling=sampling,
    )


def results(summary: Summary) -> list[dict[str, Any]]:
    lines = [
        line
        for name in summary.results
        for line in (Path(summary.output) / name).read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]


ANSWERS = ['{"age": 3, "more": [1.50]}', '{"age": "3"}', "Sure.", '{"age": 1}']


def test_answers_of_a_job_with_a_schema(tmp_path: Path) -> None:
    rows = [{"id": i, "prompt": text} for i, text in enumerate(ANSWERS)]

    summary = rowmill.run(job(tmp_path, rows, schema=SCHEMA))

    found = results(summary)
    assert [row["rowmill_text"] for row in found] == ANSWERS
    assert [row["rowmill_parsed"] for row in found] == [
        {"age": 3, "more": [1.5]},
        None,
        None,
        {"age": 1},
    ]
    assert [row["rowmill_violation"] for row in found] == [
        None,
        "/age: a string, expected an integer",
        "answer: no JSON at byte 0, expected JSON alone that follows the schema",
        None,
    ]
    assert {row["rowmill_status"] for row in found} == {"ok"}
    assert (summary.violations, summary.failed, summary.exit_code) == (2, 0, 0)
    assert any("2 rows have answers that break" in line for line in summary_lines(summary))


def test_rows_and_batch_lines_bring_schemas_of_their_own(tmp_path: Path) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    rows: list[dict[str, Any]] = [
        {"prompt": '{"age": 1}'},
        {"prompt": '{"age": 1}', "schema": SCHEMA},
        {"prompt": "12", "regex": "[0-9]"},
        {"prompt": "c", "choices": ["x", "y"]},
        {"prompt": '{"age": null}', "response_format": wanted},
        {"prompt": "[]", "response_format": {"type": "json_object"}},
        {
            "custom_id": "b",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"prompt": '{"age": 7}', "response_format": wanted},
        },
    ]

    found = results(rowmill.run(job(tmp_path, rows)))

    assert [row["rowmill_parsed"] for row in found] == [
        None,
        {"age": 1},
        None,
        None,
        None,
        None,
        {"age": 7},
    ]
    assert [row["rowmill_violation"] for row in found] == [
        None,
        None,
        "answer: a string, expected a match of `regex`",
        None,
        "/age: null, expected an integer",
        "answer: a list, expected an object",
        None,
    ]


def test_copies_have_what_their_leader_has(tmp_path: Path) -> None:
    rows = [{"prompt": '{"age": 1}'}] * 2 + [{"prompt": "x"}] * 3

    summary = rowmill.run(job(tmp_path, rows, schema=SCHEMA, temperature=0.0))

    assert (summary.copied, summary.violations) == (3, 3)
    assert [row["rowmill_parsed"] for row in results(summary)] == [{"age": 1}] * 2 + [None] * 3


def test_a_cut_answer_says_that_it_stops_short(tmp_path: Path) -> None:
    # The echo's answer is the end of the prompt: a limit of 3 leaves `"a"` of it, then nothing.
    rows = [{"prompt": '{"age": 1}["a'}]

    (found,) = results(rowmill.run(job(tmp_path, rows, schema=SCHEMA, max_tokens=3)))

    assert found["rowmill_finish_reason"] == "length"
    assert found["rowmill_violation"] == "answer stops short (finish_reason length)"


def test_another_prefix_names_the_columns(tmp_path: Path) -> None:
    rows = [{"prompt": '{"age": 1.0}'}]
    one = job(tmp_path, rows, schema=SCHEMA)
    output = one.output.model_copy(update={"prefix": "my_"})

    (found,) = results(rowmill.run(one.model_copy(update={"output": output})))

    assert (found["my_parsed"], found["my_violation"]) == ({"age": 1.0}, None)


def test_answers_that_break_their_schema_can_be_asked_again(tmp_path: Path) -> None:
    rows = [{"prompt": text} for text in ANSWERS]
    one = job(tmp_path, rows, schema={**SCHEMA, "title": "old"})
    first = rowmill.run(one)
    assert retry(one).asked == 0
    wider = one.sampling.model_copy(update={"schema_": {"type": "object"}})

    again = retry(one.model_copy(update={"sampling": wider}), kinds=["violation"])

    assert (first.violations, again.asked, again.violations) == (2, 2, 1)
    assert [row["rowmill_parsed"] is None for row in results(again)] == [
        False,
        False,
        True,
        False,
    ]


def test_looking_at_a_run_tells_of_violations(tmp_path: Path) -> None:
    summary = rowmill.run(job(tmp_path, [{"id": 1, "prompt": "x"}], schema=SCHEMA))

    found = status(summary.output)
    lines = list(trace(summary.output, "in.jsonl:1").lines())

    assert found.violations == 1
    assert any("1 with answers that break" in line for line in found.lines())
    assert any(line.startswith("answer    answer: no JSON") for line in lines)


def test_infer_gives_parsed_answers(tmp_path: Path) -> None:
    one = job(tmp_path, [], schema=SCHEMA)

    rows = list(rowmill.infer([{"prompt": '{"age": 1}'}, {"prompt": "[]"}], one))

    assert [(row["rowmill_parsed"], row["rowmill_violation"]) for row in rows] == [
        ({"age": 1}, None),
        (None, "answer: a list, expected an object"),
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "https://example.com/x"}, "refers to something that is not in it"),
        ({"properties": {"a": {"pattern": "(?<"}}}, "open bracket"),
        ({"pattern": "(a{1000}){1000}"}, "no regular expression"),
    ],
)
def test_a_schema_that_no_answer_can_be_judged_by_is_refused(
    tmp_path: Path, schema: dict[str, Any], words: str
) -> None:
    with pytest.raises(rowmill.RowmillError, match=words):
        rowmill.run(job(tmp_path, [{"prompt": "x"}], schema=schema))

    row = {"prompt": "x", "schema": schema}
    (found,) = results(rowmill.run(job(tmp_path, [row])))
    assert (found["rowmill_error_kind"], found["rowmill_violation"]) == ("invalid", None)


def test_outcomes_of_rows_that_are_held_to_nothing_say_null() -> None:
    outcome = ok(0, "x")

    assert (outcome.parsed, outcome.violation) == (NULL, None)
