"""Jobs with one wrong setting, on real processes: the verdict names it, and accuses nobody where nothing is wrong.

The same with vLLM is in tests/engines/test_vllm_planted.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/planted.py"


@pytest.mark.slow
@pytest.mark.parametrize("job", ["tokeniser", "disk", "endpoint", "well"])
def test_verdict_names_what_is_planted(tmp_path: Path, job: str) -> None:
    command = [sys.executable, str(SCRIPT), "--only", job, "--seconds", "6"]
    command += ["--folder", str(tmp_path), "--json", str(tmp_path / "found.json")]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    if "NOT RUN" in done.stdout:
        pytest.skip(f"NOT TESTED: {done.stdout.splitlines()[0]}")
    assert 0 == done.returncode, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())[job]
    assert found["ok"] > 0
    if job != "well":
        assert found["station"] == found["planted"]
