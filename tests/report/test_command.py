"""`rowmill report` and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rowmill.cli import main

REFUSED = 2


def rowmill(*arguments: object) -> int:
    return int(main([str(a) for a in arguments], standalone_mode=False))


def test_the_page_lies_at_the_output(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = shutil.copytree(small_run, tmp_path / "out")

    assert rowmill("report", output) == 0

    page = (output / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert f"report written to {output}/report.html" in capsys.readouterr().err
    # It is no part of the run: what reads the run reads it as before.
    assert rowmill("status", output) == 0
    assert rowmill("report", output, "--json") == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["report"]["path"] == f"{output}/report.html"


def test_it_goes_where_it_is_told(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rowmill("report", small_run, "-o", tmp_path / "r.html") == 0
    assert rowmill("report", small_run, "-o", "-") == 0

    there = (tmp_path / "r.html").read_text()
    assert there.count("<figure") == capsys.readouterr().out.count("<figure") > 5
    assert not (small_run / "report.html").exists()


@pytest.mark.parametrize("name", ["run.json", "results/report.html", "commits/0000000.json"])
def test_nothing_of_the_run_is_written_over(
    small_run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path for path in small_run.rglob("*"))

    assert rowmill("report", small_run, "-o", small_run / name) == REFUSED

    assert "lies among the run's own files" in capsys.readouterr().err
    assert sorted(small_run.rglob("*")) == before


def test_the_input_is_not_written_over(
    small_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source,) = small_run.parent.glob("*.jsonl")
    text = source.read_text()

    assert rowmill("report", small_run, "-o", source) == REFUSED

    assert "an input of the run" in capsys.readouterr().err
    assert source.read_text() == text


@pytest.mark.parametrize("command", ["report", "watch"])
def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rowmill(command, tmp_path) == REFUSED

    assert "holds no run" in capsys.readouterr().err


def test_the_other_run_must_be_there(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "r.html"

    assert rowmill("report", small_run, "--against", tmp_path, "-o", target) == REFUSED

    assert f"`{tmp_path}` holds no run" in capsys.readouterr().err
    assert not target.exists()
