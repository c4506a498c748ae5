"""A worker on a cluster makes vectors, and the run's own process brings them into a store as tasks are committed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.executors.ray.nodes import Cluster
from tests.load.runs import done, expected, job_of
from tests.load.stores import store

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(280)]

ROWS = 200


@pytest.mark.skipif(
    importlib.util.find_spec("lancedb") is None, reason="lancedb is not installed"
)
def test_vectors_made_on_a_cluster_are_in_the_store_once(tmp_path: Path, head: Cluster) -> None:
    with store("lancedb") as there:
        address = there.address("docs")
        job = str(job_of(tmp_path, rows=ROWS, task_rows=10, sink=address))
        on_ray = ("run", job, "--executor", "ray", "--address", head.address)

        said = done(*on_ray)
        right = expected(tmp_path / "out")

        assert f"vectors: {ROWS} rows in {address}" in said
        assert len(right) == ROWS
        assert there.read("docs") == right
        assert f"vectors: {ROWS} rows in {address}" in done(*on_ray)
        assert there.read("docs") == right
