"""A stage of a Ray Data pipeline: each batch comes back with answers behind its columns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import rowmill.ray
from rowmill import load_job
from rowmill.ray import Stage
from tests.executors.ray.nodes import Cluster

ECHO = {"engine.name": "echo", "prompt": "say {text}"}
PIPELINE = """
import json, sys
import ray
import rowmill
import rowmill.ray

ray.init(address=sys.argv[1], log_to_driver=False)
job = rowmill.load_job(None, settings={"engine.name": "echo", "prompt": "say {text}"})
rows = ray.data.range(1000, override_num_blocks=8).map(lambda row: {**row, "text": f"word {row['id']}"})
answered = rows.map_batches(
    rowmill.ray.stage(job), batch_format="pyarrow", batch_size=100, concurrency=1, num_cpus=0.5
)
found = answered.take_all()
json.dump([[row["id"], row["rowmill_text"], row["rowmill_status"]] for row in found], sys.stdout)
"""


@contextmanager
def opened(**settings: object) -> Iterator[Stage]:
    stage = rowmill.ray.stage(load_job(None, settings={**ECHO, **settings}))()
    try:
        yield stage
    finally:
        stage.close()


def test_answers_stand_behind_the_columns_in_the_order_of_the_batch() -> None:
    batch = pa.table({"text": ["one", "two", "three"], "n": pa.array([1, 2, None], pa.int8())})

    with opened() as stage:
        first, second = stage(batch), stage(batch)

    assert first.select(["text", "n"]) == batch
    assert first["rowmill_text"].to_pylist() == ["say one", "say two", "say three"]
    assert first.schema == second.schema
    assert "rowmill_row" not in first.column_names


def test_bad_rows_are_rows_that_say_so_and_types_stay() -> None:
    with opened() as stage:
        good = stage(pa.table({"text": ["one"]}))
        mixed = stage(pa.table({"text": [None, "x" * 40_000, "fine"]}))
        empty = stage(pa.table({"text": pa.array([], pa.string())}))

    assert mixed["rowmill_status"].to_pylist() == ["error", "error", "ok"]
    assert mixed["rowmill_error_kind"].to_pylist()[1] == "too_long"
    assert good.schema == mixed.schema == empty.schema


@pytest.mark.ray
@pytest.mark.slow
def test_a_pipeline_on_a_cluster_answers_each_row(head: Cluster, tmp_path: Path) -> None:
    # Besides the actor, Ray Data wants a whole core to read.
    head.add(cpus=2)
    script = tmp_path / "pipeline.py"
    script.write_text(PIPELINE)

    done = subprocess.run(
        [sys.executable, str(script), head.address],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )

    assert done.returncode == 0, done.stderr
    found = sorted(json.loads(done.stdout))
    assert found == [[i, f"say word {i}", "ok"] for i in range(1000)]
