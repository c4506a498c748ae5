"""Jobs with one wrong setting on the real vLLM: the verdict names it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.dear, pytest.mark.timeout(900)]
pytest.importorskip("vllm")

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/planted.py"


@pytest.mark.parametrize("job", ["seats", "budget", "tokeniser", "disk", "well"])
def test_verdict_names_what_is_planted(tmp_path: Path, job: str) -> None:
    command = [sys.executable, str(SCRIPT), "--engine", "vllm", "--only", job]
    command += ["--seconds", "15", "--most-s", "800", "--rows", "20000"]
    command += ["--disk-bytes-s", "3000", "--set", '{"cpu_kv_gib": 1, "dtype": "float32"}']
    command += ["--folder", str(tmp_path), "--json", str(tmp_path / "found.json")]

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        # Where others use the cores as well, what was planted may not be what a run waited for: looked at once more.
        done = subprocess.run(command, capture_output=True, text=True, check=False)

    if "NOT RUN" in done.stdout:
        pytest.skip(f"NOT TESTED: {done.stdout.splitlines()[0]}")
    assert 0 == done.returncode, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())[job]
    assert found["ok"] > 0
