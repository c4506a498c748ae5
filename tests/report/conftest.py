"""A small run that many tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.runs import make_run


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 3,000 rows with failures, retries and answers cut short."""
    return make_run(tmp_path_factory.mktemp("small"))
