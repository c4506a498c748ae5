"""The example of an engine outside the package: built, installed beside rowmill, found by its entry point, and run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def installed(root: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who installed it."""
    examples = shutil.copytree(root / "examples", tmp_path / "examples")
    place = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--target", place, examples / "engine"], check=True)
    return {**os.environ, "PYTHONPATH": f"{place}{os.pathsep}{root / 'src'}"}


def test_engine_from_another_package_answers_a_job(
    installed: dict[str, str], tmp_path: Path
) -> None:
    words = ["-m", "rowmill", "run", "examples/engine/job.toml"]
    subprocess.run([sys.executable, *words], cwd=tmp_path, env=installed, check=True)

    part = tmp_path / "out/engine/results/part-00000.jsonl"
    rows = [json.loads(line) for line in part.read_text("utf-8").splitlines()]
    assert rows
    for row in rows:
        said = f"Say {row['word']} in {row['language']}.".upper() + "!"
        assert ("ok", said) == (row["rowmill_status"], row["rowmill_text"])


def test_wrong_setting_of_it_is_refused_by_name(
    installed: dict[str, str], tmp_path: Path
) -> None:
    words = ["-m", "rowmill", "check", "examples/engine/job.toml", "--set", "engine.marc='?'"]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=installed,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "did you mean `mark`" in done.stderr


def test_its_own_tests_pass_where_it_is_installed(
    installed: dict[str, str], tmp_path: Path
) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/engine/tests"]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=installed,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
