"""`plan.reorder_fields`: asked for, told, and part of what a run is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import rowmill
from rowmill.config import Job, PlanConfig
from rowmill.errors import RunMismatch
from rowmill.executors.opening import understand
from rowmill.executors.wording import field_order
from rowmill.read import open_source
from tests.engines.test_vllm_place import config_of

PROMPT = "Review: {text}\nShop: {shop}\nAnswer."


def job_of(folder: Path, **settings: Any) -> Job:
    rows = [{"text": f"{i} good", "shop": f"number {i % 3}, with a name"} for i in range(90)]
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = {
        "source": str(source),
        "output": str(folder / "out"),
        "prompt": PROMPT,
        "engine": {"name": "echo"},
        "sampling": {"temperature": 0},
    }
    return Job.model_validate({**job, **settings})


def test_the_order_is_chosen_once_and_is_what_the_run_is(tmp_path: Path) -> None:
    job = job_of(tmp_path, plan={"reorder_fields": True})
    rowmill.run(job)
    first = json.loads((tmp_path / "out/results/part-00000.jsonl").read_text().splitlines()[0])
    record = json.loads((tmp_path / "out/run.json").read_text())

    assert first["rowmill_text"] == "Shop: number 0, with a name\nReview: 0 good\nAnswer."
    assert "answers can change" in record["reasons"]["plan.reorder_fields"]

    # The same command finds its run; one that does not ask for it, or another prompt, does not.
    assert rowmill.run(job).asked == 0
    for other in (job_of(tmp_path), job.model_copy(update={"prompt": PROMPT + "!"})):
        with pytest.raises(RunMismatch, match="`prompt`"):
            rowmill.run(other)


def test_check_says_what_it_would_bring_where_it_is_not_asked_for(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(Path(__file__).parents[1] / "golden/tiny_tokenizer", model)
    (model / "config.json").write_text(json.dumps(config_of("1.5b")))
    report = rowmill.check(job_of(tmp_path, engine={"name": "vllm", "model": str(model)}))
    told = {lever.name: lever.reason for lever in report.levers}

    assert "`plan.reorder_fields = true` does it, and answers can change" in told["field order"]


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "classify", "classify": {"labels": ["a", "b"], "end": ""}},
        {"kind": "embed", "validate": {"too_long": "chunk"}},
    ],
)
def test_an_order_is_found_whatever_is_made_of_the_prompt(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    job = job_of(tmp_path, prompt=PROMPT.replace("text", "sampling"), sampling={}, **settings)
    source = Path(job.source[0])
    source.write_text(source.read_text().replace('"text"', '"sampling"'))

    found = field_order(understand(job), open_source(job.source))

    assert found is not None
    assert found.prompt.startswith("Shop: {shop}\n")


def test_check_says_how_much_less_time_it_would_take(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(Path(__file__).parents[1] / "golden/tiny_tokenizer", model)
    (model / "config.json").write_text(json.dumps(config_of("1.5b")))
    job = job_of(
        tmp_path, engine={"name": "vllm", "model": str(model)}, raw=True, plan={"gpu": "L4"}
    )
    rows = [{"text": f"{i} good", "shop": f"{i % 3}, of a long name" * 40} for i in range(300)]
    Path(job.source[0]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    lever = next(x for x in rowmill.check(job).levers if x.name == "field order")

    assert " and take " in lever.reason
    assert lever.saved_s > 0


def test_rows_of_orders_of_their_own_are_resumed_in_those(tmp_path: Path) -> None:
    job = job_of(tmp_path, plan={"reorder_fields": True}, prompt="A: {a}\nB: {b}\nAnswer.")
    common, own = "words that many rows have, {}", "{:03d} alone and short"
    rows = [
        {"a": common.format(i % 4), "b": own.format(i)}
        if i % 2
        else {"a": own.format(i), "b": common.format(i % 4)}
        for i in range(90)
    ]
    source = Path(job.source[0])
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rowmill.run(job)
    lines = (tmp_path / "out/results/part-00000.jsonl").read_text().splitlines()
    record = json.loads((tmp_path / "out/run.json").read_text())

    assert [json.loads(line)["rowmill_text"] for line in lines[:2]] == [
        "B: words that many rows have, 0\nA: 000 alone and short\nAnswer.",
        "A: words that many rows have, 1\nB: 001 alone and short\nAnswer.",
    ]
    assert "answers can change" in record["reasons"]["plan.reorder_fields"]
    assert "words" not in record["identity"]["plan.reorder_fields"]

    assert rowmill.run(job).asked == 0
    with pytest.raises(RunMismatch, match=r"`plan\.reorder_fields`"):
        rowmill.run(job.model_copy(update={"plan": PlanConfig()}))
    # Files that join have values of their own; the orders stay those that the run began with.
    (tmp_path / "more.jsonl").write_text(json.dumps({"a": "new", "b": common.format(2)}) + "\n")
    more = job.model_copy(update={"source": (*job.source, str(tmp_path / "more.jsonl"))})
    assert rowmill.run(more, append=True).asked == 1
    last = (tmp_path / "out/results").glob("*.jsonl")
    texts = [
        json.loads(x)["rowmill_text"] for file in last for x in file.read_text().splitlines()
    ]
    assert "B: words that many rows have, 2\nA: new\nAnswer." in texts


def test_a_template_is_told_the_day_the_run_began_whenever_it_goes_on(tmp_path: Path) -> None:
    template = tmp_path / "dated.jinja"
    template.write_text("{{ messages[0].content }} on {{ strftime_now('%Y-%m-%d') }}")
    tokenizer = Path(__file__).parents[1] / "golden/tiny_tokenizer"
    engine = {"name": "echo", "tokenizer": str(tokenizer), "chat_template": str(template)}
    job = job_of(tmp_path, prompt="{text}", kind="chat", engine=engine)
    rowmill.run(job)
    record = tmp_path / "out/run.json"
    today = json.loads(record.read_text())["identity"]["template_date"]

    # As if it had begun on another day.
    record.write_text(record.read_text().replace(today, "2024-02-03"))
    more = tmp_path / "more.jsonl"
    more.write_text('{"text": "one more", "shop": ""}\n')
    rowmill.run(
        job.model_copy(update={"source": (*job.source, str(more))}),
        append=True,
    )

    texts = [
        json.loads(line)["rowmill_text"]
        for part in sorted((tmp_path / "out/results").iterdir())
        for line in part.read_text().splitlines()
    ]
    assert texts[0] == f"0 good on {today}"
    assert texts[-1] == "one more on 2024-02-03"
