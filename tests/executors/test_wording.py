"""`plan.reorder_fields`: asked for, told, and part of what a run is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import rowmill
from rowmill.config import Job
from rowmill.errors import RunMismatch
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
