"""One set of engines for several runs."""

from __future__ import annotations

import json
from pathlib import Path

from rowmill.config import Job
from rowmill.engines.warm import WarmFleet
from rowmill.executors.local import run


def test_engines_stay_open_over_runs(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"prompt": f"row {i}"}) + "\n" for i in range(500)))
    log = tmp_path / "started"
    engine = {"name": "echo", "tokenizer": "bytes", "replicas": 2, "log": str(log)}
    tree = {"source": str(source), "engine": engine}
    first = Job.model_validate({**tree, "output": str(tmp_path / "0")})
    warm = WarmFleet(first.engine, log=tmp_path / "engine.log")
    try:
        pids = [one._process.pid for one in warm._fleet._supervisors if one._process]
        for number in range(3):
            job = Job.model_validate({**tree, "output": str(tmp_path / str(number))})
            summary = run(job, warm=warm)

            assert (summary.ok, summary.exit_code) == (500, 0)
        assert [one._process.pid for one in warm._fleet._supervisors if one._process] == pids
    finally:
        warm.shut()
    assert len(log.read_bytes().split()) == 1500
