"""What the Ray executor refuses before anything is started, and names that do not exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rowmill import load_job, run
from rowmill.errors import ConfigError, UnknownName
from rowmill.executors.ray.cluster import needs

WITHOUT_RAY = """
import sys
sys.modules["ray"] = None
from rowmill.cli import main
sys.exit(main(sys.argv[1:], standalone_mode=False))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n')
    return path


def test_without_ray_the_pip_line_is_told_and_nothing_is_left(
    tmp_path: Path, source: Path
) -> None:
    words = [str(source), "-o", str(tmp_path / "out"), "--engine", "echo", "--executor", "ray"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, "run", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert "`pip install 'rowmill[ray]'`" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"source": "-"}, "standard input is read by one machine alone"),
        ({"run.executor": "rai"}, "did you mean `ray`"),
        ({"ray.workers": 0}, "ray.workers"),
    ],
)
def test_jobs_are_refused_in_words(
    tmp_path: Path, source: Path, settings: dict[str, object], words: str
) -> None:
    given = {"source": str(source), "output": str(tmp_path / "out"), "engine.name": "echo"}
    executor = {"run.executor": "ray"}

    with pytest.raises((ConfigError, UnknownName), match=words):
        run(load_job(None, settings={**given, **executor, **settings}))

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "nodes", "cpus", "gpus"),
    [
        ({"engine.name": "echo"}, [{"CPU": 8.0}], 1, 0),
        (
            {"engine.name": "http", "engine.url": "http://x/v1"},
            [{"CPU": 8.0, "GPU": 1.0}],
            1,
            0,
        ),
        ({"engine.name": "llamacpp", "engine.model": "x.gguf"}, [{"CPU": 8.0}], 8, 0),
        ({"engine.name": "llamacpp", "engine.model": "x.gguf", "engine.threads": 2}, [], 2, 0),
        ({"engine.name": "vllm", "engine.model": "x"}, [{"CPU": 8.0, "GPU": 4.0}], 1, 1),
        (
            {
                "engine.name": "vllm",
                "engine.model": "x",
                "engine.tensor_parallel_size": 2,
                "engine.pipeline_parallel_size": 2,
            },
            [{"CPU": 8.0, "GPU": 4.0}],
            1,
            4,
        ),
        ({"engine.name": "vllm", "engine.model": "x"}, [{"CPU": 8.0}], 1, 0),
        ({"engine.name": "vllm", "engine.model": "x", "ray.gpus": 0.5}, [], 1, 0.5),
    ],
)
def test_a_worker_needs_what_its_engine_needs(
    settings: dict[str, object], nodes: list[dict[str, float]], cpus: float, gpus: float
) -> None:
    job = load_job(None, settings=settings)

    assert needs(job, nodes) == {"CPU": cpus, "GPU": gpus}
