"""`rowmill bench` as a process of its own, and the script that calls it case by case."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.bench.tokenizers_of import word_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    folder = word_tokenizer(tmp_path / "tokenizer")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def call(python: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "rowmill", "bench", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_table_on_stdout_and_all_numbers_in_a_file(
    tmp_path: Path, tokenizer: Path, python: str
) -> None:
    target = tmp_path / "new" / "found.json"

    done = call(
        python,
        *("--engine", "echo", "--tokenizer", tokenizer, "--workload", "short", "--rows", 50),
        *("--rounds", 2, "--out", target, "--folder", tmp_path / "kept", "--profile"),
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("### short, tokenizer, equal settings\n")
    assert "| rowmill | " in done.stdout
    assert "round 2: rowmill:" in done.stderr
    found = json.loads(target.read_text())
    (table,) = found["tables"]
    assert found["command"].startswith("rowmill bench --engine echo")
    assert "cores of" in found["hardware"]
    assert "Python 3." in found["versions"]
    assert [run["invalid"] for run in table["runs"]] == ["", ""]
    assert table["runs"][0]["profile"]["parent_cpu_s"] > 0
    assert table["table"][0]["runs"] == 2
    assert table["markdown"] in done.stdout
    assert (tmp_path / "kept" / "rowmill.log").is_file()


def test_json_goes_to_stdout_alone(tokenizer: Path, python: str) -> None:
    done = call(
        python,
        *("--engine", "echo", "--tokenizer", tokenizer, "--workload", "short", "--rows", 40),
        *("--rounds", 1, "--json", "--defaults"),
    )

    assert done.returncode == 0, done.stderr
    titles = [table["title"] for table in json.loads(done.stdout)["tables"]]
    assert [title.rpartition(", ")[2] for title in titles] == [
        "equal settings",
        "everybody's own defaults",
    ]


def test_nothing_measured_in_time_is_told_by_the_exit_code(
    tokenizer: Path, python: str
) -> None:
    done = call(
        python,
        *("--engine", "echo", "--tokenizer", tokenizer, "--max-seconds", 0.01),
    )

    assert done.returncode == 4
    assert "Ended early: the time was over." in done.stdout


def test_mistakes_are_refused(python: str) -> None:
    done = call(python, "--contender", "ray")

    assert done.returncode == 2
    assert "no contender `ray`" in done.stderr
    assert "no model is named" in done.stderr


def test_the_script_without_a_tokenizer_lists_its_cases(root: Path, python: str) -> None:
    done = subprocess.run(
        [python, root / "benchmarks" / "vllm.py"], capture_output=True, text=True, check=True
    )

    assert "prefixes-1.5b kv_cache_memory_bytes=5505024000" in done.stdout


def test_the_script_makes_models_and_appends_tables(
    tmp_path: Path, root: Path, tokenizer: Path, python: str
) -> None:
    results, models = tmp_path / "results.json", tmp_path / "models"
    command = [python, str(root / "benchmarks" / "vllm.py"), "--tokenizer", str(tokenizer)]
    command += ["--only", "short-0.5b,mixed-0.5b", "--rows", "40", "--rounds", "1"]
    command += ["--models", str(models), "--out", str(results), "--", "--engine", "echo"]
    # `echo` takes no engine settings of vLLM, so it is refused, and that is kept.

    subprocess.run(command, capture_output=True, check=True)

    found = json.loads(results.read_text())
    assert [(one["case"], one["exit_code"]) for one in found] == [
        ("short-0.5b", 2),
        ("mixed-0.5b", 2),
    ]
    config = json.loads((models / "qwen2.5-0.5b" / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"]) == (896, 24)
    assert (models / "qwen2.5-0.5b" / "tokenizer.json").is_file()
