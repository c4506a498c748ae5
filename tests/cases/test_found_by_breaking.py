"""Kinds of trouble that no case names, found by trying to break a run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rowmill.answers import rule_of
from rowmill.config import Job
from rowmill.engines.http_answer import Asked, read_answer
from rowmill.errors import RowError
from rowmill.executors.opening import new_run, understand
from rowmill.read import open_source
from rowmill.rows import Row, Sampling
from rowmill.stream import infer
from rowmill.validate import validate
from tests.cases.command import (
    OK,
    REFUSED,
    SOME_FAILED,
    job,
    kill,
    results,
    rowmill,
    run,
    start,
)
from tests.cases.endpoint import wait_until

BATCH = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return path


def test_a_refused_job_leaves_the_users_hidden_files(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {"id": 1, "prompt": "a"}, {"id": 1, "prompt": "b"})
    out = tmp_path / "out"
    (out / ".config").mkdir(parents=True)
    (out / ".env").write_text("keep")
    (out / ".config/.inner").write_text("keep")

    assert run(source, out).code == REFUSED

    assert sorted(p.name for p in out.rglob("*")) == [".config", ".env", ".inner"]


@pytest.mark.parametrize(
    "line", ["{}", "{ }", "{                    }", '{ "id" : 1 , "x" : 2 }']
)
def test_any_white_space_in_an_object_gives_strict_results(tmp_path: Path, line: str) -> None:
    source = write(tmp_path / "in.jsonl", line)

    run(source, tmp_path / "out", "--prompt", "hello")

    (record,) = results(tmp_path / "out")
    assert record["rowmill_status"] == "ok"


def verdicts(tmp_path: Path, rows: list[object], **settings: object) -> list[object]:
    """What each row is, in the given order: its id and prompt, or the kind of its failure."""
    source = write(tmp_path / "in.jsonl", *rows)
    tree = {"source": str(source), "engine": {"name": "echo"}, **settings}
    opened = new_run(understand(Job.model_validate(tree)), open_source([str(source)]), "t")
    found: list[object] = []
    for row in rows:
        try:
            request = validate(Row(0, json.dumps(row).encode()), opened.words.recipe)
            found.append((request.id, request.text))
        except RowError as error:
            found.append(error.kind)
    return found


def test_the_order_of_batch_lines_decides_nothing(tmp_path: Path) -> None:
    rows: list[object] = [
        BATCH,
        {k: v for k, v in BATCH.items() if k != "url"},
        {k: v for k, v in BATCH.items() if k not in ("custom_id", "method")},
        {"body": BATCH["body"]},
        {**BATCH, "url": "/v1/embeddings"},
        {**BATCH, "custom_id": ""},
        {**BATCH, "body": {"prompt": "x", "max_tokens": 1}},
        {**BATCH, "body": {"prompt": "x", "max_tokens": True}},
    ]

    there = verdicts(tmp_path, rows)
    back = verdicts(tmp_path, rows[::-1])

    assert there == back[::-1]
    assert there[0] == (b'"a"', "x")
    assert "invalid" in there


def test_batch_lines_have_the_id_of_the_named_column(tmp_path: Path) -> None:
    found = verdicts(tmp_path, [BATCH] * 3, validate={"id_column": "nr"})

    assert found == [(b"", "x")] * 3


@pytest.mark.parametrize("count", [-1, 5_000_000_000, True, None, "7"])
def test_an_impossible_usage_counts_as_none(count: object) -> None:
    body = {
        "choices": [{"text": "t"}],
        "usage": {"prompt_tokens": count, "completion_tokens": 2},
    }

    answer = read_answer(200, json.dumps(body).encode(), Asked("/v1/completions", b""))

    assert (answer.prompt_tokens in (0, 1), answer.output_tokens) == (True, 2)


@pytest.mark.parametrize("regex", ["*a", "a{2,1}", r"\p{L}+"])
def test_an_expression_of_another_dialect_is_the_endpoints_to_judge(regex: str) -> None:
    rule = rule_of(Sampling(regex=regex))

    assert rule is not None
    assert rule.judge("t", "stop").violation is None


def test_input_that_changes_in_mid_run_stops_it_and_is_never_published(tmp_path: Path) -> None:
    rows = [{"id": i, "prompt": f"A{i}"} for i in range(120)]
    source, out = write(tmp_path / "in.jsonl", *rows), tmp_path / "out"
    process = start(
        job(source, out, sets={"engine.delay_s": "0.05", "engine.seats": "2"}),
        tmp_path / "words",
    )
    try:
        wait_until(lambda: bool(list(out.glob("segments/*/*"))), "answers on the disk")
        source.write_text(source.read_text().replace('"A', '"B'))
        process.wait(60)
    finally:
        kill(process)

    assert process.returncode == 3
    assert not (out / "results").exists()
    source.write_text(source.read_text().replace('"B', '"A'))
    time.sleep(0.01)
    assert run(source, out, sets={"engine.delay_s": "0", "engine.seats": "64"}).code == OK
    assert [r["rowmill_text"] for r in results(out)] == [f"A{i}" for i in range(120)]


def test_another_prefix_is_refused_on_resume(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {"p_text": "mine", "prompt": "x"})
    assert run(source, tmp_path / "out").code == OK

    again = run(source, tmp_path / "out", sets={"output.prefix": "p_"})

    assert again.code == REFUSED
    assert "`output.prefix`" in again.stderr


def test_a_retry_that_stops_early_does_not_claim_to_be_done(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", *({"id": i, "prompt": f"t{i}"} for i in range(900)))
    fault = 'engine.faults=[{contains="7", action="error"}]'
    assert run(source, tmp_path / "out", "--set", fault).code == SOME_FAILED

    slow = ["run.max_failed_after=20", "engine.seats=4", "engine.delay_s=0.01"]
    arguments = [str(tmp_path / "out"), *(word for one in slow for word in ("--set", one))]

    retried = rowmill("retry", arguments)

    assert retried.code == 5, retried.stderr


def test_infer_tells_of_half_a_surrogate_pair_and_goes_on() -> None:
    rows = [{"prompt": "a\ud800"}, {"prompt": "fine"}]
    echo = Job.model_validate({"engine": {"name": "echo"}})

    answers = list(infer(rows, echo))

    assert [a["rowmill_status"] for a in answers] == ["error", "ok"]
