"""Each example runs as its first lines say, on the echo engine, and no row is missing."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """A folder with the examples in it, so that outputs do not land in the source."""
    shutil.copytree(root / "examples", tmp_path / "examples")
    return tmp_path


def run_at(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def results(output: Path) -> list[dict[str, Any]]:
    return [
        row for part in sorted(output.glob("results/part-*.jsonl")) for row in read_rows(part)
    ]


@pytest.mark.parametrize("name", ["echo", "chat_messages"])
def test_job_answers_every_row_and_leaves_its_columns_alone(
    checkout: Path, python: str, name: str
) -> None:
    run_at(checkout, python, "-m", "rowmill", "run", f"examples/{name}/job.toml")

    answers = results(checkout / "out" / name)
    rows = read_rows(checkout / f"examples/{name}/rows.jsonl")
    assert [row["rowmill_status"] for row in answers] == ["ok"] * len(rows)
    assert [
        {k: v for k, v in a.items() if not k.startswith("rowmill_")} for a in answers
    ] == rows


def test_echo_example_answers_with_the_filled_prompt(checkout: Path, python: str) -> None:
    run_at(checkout, python, "-m", "rowmill", "run", "examples/echo/job.toml")

    texts = [row["rowmill_text"] for row in results(checkout / "out/echo")]
    assert "Say tea in 中文." in texts[14]
    assert "Say {curly} in TeX." in texts[16]


def test_python_api_gives_an_answer_a_row(checkout: Path, python: str) -> None:
    done = run_at(checkout, python, "-X", "utf8", "examples/python_api.py")

    lines = done.stdout.splitlines()
    for city, line in zip(("Porto", "Tromsø", "深圳"), lines, strict=True):
        assert line.startswith(f"{city} ok ")
        assert f"Name a river near {city}." in line


def test_resume_example_ends_with_each_row_once(
    checkout: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON", python)

    done = run_at(checkout, "bash", "examples/resume.sh", str(checkout / "resume"))

    assert "killed with about" in done.stdout
    assert "2000 rows, 2000 distinct, 2000 asked" in done.stdout


def test_sentiment_job_runs_on_the_echo_engine_and_is_scored(
    checkout: Path, python: str
) -> None:
    """The demo without its model: choices are drawn by a hash, so only the bookkeeping is looked at."""
    job = "examples/sentiment/job.toml"
    echo = ("--engine", "echo", "--set", "engine.tokenizer=bytes")
    run_at(checkout, python, "-m", "rowmill", "run", job, *echo)
    done = run_at(checkout, python, "examples/sentiment/accuracy.py", "out/sentiment")

    answers = {row["rowmill_text"] for row in results(checkout / "out/sentiment")}
    assert answers == {" positive", " negative"}
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "English",
        "Chinese",
        "all",
    ]
    assert "of 160)" in done.stdout
    assert "of 80)" in done.stdout
    assert "failed" not in done.stdout


def test_accuracy_counts_a_failed_row_as_wrong(root: Path) -> None:
    score = runpy.run_path(str(root / "examples/sentiment/accuracy.py"))["score"]
    right = {"rowmill_status": "ok", "rowmill_text": " positive", "label": "positive"}
    wrong = {"rowmill_status": "ok", "rowmill_text": " positive", "label": "negative"}
    failed = {"rowmill_status": "error", "rowmill_text": None, "label": "positive"}

    line = score([right, right, wrong, failed])

    assert line.strip() == '50.0% right (2 of 4, 1 failed); always "positive": 75.0%'


def test_accuracy_without_results_is_told(root: Path, python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [python, root / "examples/sentiment/accuracy.py", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LANG": "C"},
    )

    assert done.returncode == 1
    assert "no results" in done.stderr


def test_reviews_are_240_of_two_languages_without_a_repeat(root: Path) -> None:
    rows = read_rows(root / "examples/reviews.jsonl")

    assert Counter(row["lang"] for row in rows) == {"en": 160, "zh": 80}
    assert Counter(row["label"] for row in rows) == {"positive": 131, "negative": 109}
    assert len({row["id"] for row in rows}) == len({row["text"] for row in rows}) == 240
    assert max(len(row["text"].split()) for row in rows) <= 120
