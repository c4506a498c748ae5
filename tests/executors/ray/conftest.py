"""A head on which each test runs, and further nodes that it may kill."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.executors.ray.nodes import SETTINGS, Cluster, cluster

NO_RAY = "Ray is not installed: NOTHING that needs it was tested; `pip install 'rowmill[ray]'` brings it"


@pytest.fixture(scope="module")
def head() -> Iterator[Cluster]:
    """A cluster with one core."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip(NO_RAY)
    with cluster(1) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in {**SETTINGS, "RAY_TMPDIR": str(made.folder)}.items():
            patch.setenv(name, value)
        yield made
