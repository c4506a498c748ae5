"""`tune` with the real vLLM on a CPU: at most four starts, and what it answered is part of the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowmill.config import Job
from rowmill.executors.local import run
from rowmill.tune import Ask, Patience, tune

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.dear,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("torch")
pytest.importorskip("vllm")

ROWS = 12_000


def test_rows_of_trials_are_part_of_the_run(tmp_path: Path) -> None:
    from tests.engines.hf_folders import random_folder

    source = tmp_path / "rows.jsonl"
    rows = [{"prompt": f"{i} words and {'more ' * (i % 19)}"} for i in range(ROWS)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    engine = {"name": "vllm", "model": str(random_folder(tmp_path / "model")), "cpu_kv_gib": 1}
    engine |= {"seats": 16, "max_model_len": 256, "enforce_eager": True, "dtype": "float32"}
    job = Job.model_validate(
        {
            "source": str(source),
            "output": str(tmp_path / "out"),
            "engine": engine,
            "raw": True,
            "sampling": {"temperature": 0, "max_tokens": 8, "ignore_eos": True},
        }
    )

    found = tune(job, Ask(patience=Patience(most_s=2.0, least_s=0.5), most_starts=2))

    assert 1 <= found.starts <= 2
    assert 0 < found.rows_kept < ROWS
    assert found.probe is not None
    assert found.probe.rows == ROWS - found.rows_kept
    summary = run(job)
    assert (summary.total, summary.ok) == (ROWS, ROWS)
    assert summary.asked == ROWS - found.rows_kept
    assert summary.forecast is not None
