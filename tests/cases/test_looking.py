"""What `trace`, `status`, `export` and `report` say of lines that are no rows, of files, and of flags that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rowmill.cli import main

REFUSED = 2


def rowmill(*arguments: object) -> int:
    return int(main([str(a) for a in arguments], standalone_mode=False) or 0)


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    rowmill(*arguments, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt":"a"}\n\n{"prompt":"b"}\n{"prompt":"c"}\n')
    return path


def run(source: Path, out: Path, *arguments: object) -> Path:
    assert rowmill("run", source, "--engine", "echo", "-o", out, *arguments) == 0
    return out


@pytest.mark.parametrize("sets", [(), ("--set", "plan.sort=input")])
def test_a_blank_line_is_told_as_one(
    source: Path, tmp_path: Path, sets: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(source, tmp_path / "out", *sets)
    capsys.readouterr()

    assert rowmill("trace", out, "in.jsonl:2") == 0
    assert "the line is blank" in capsys.readouterr().out
    assert not told(capsys, "trace", out, "in.jsonl:3")["is_blank"]


def test_a_line_beyond_the_limit_is_none_of_the_run(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(source, tmp_path / "out", "--limit", 2)

    assert rowmill("trace", out, "in.jsonl:4") == REFUSED
    assert "`run.limit` leaves it out" in capsys.readouterr().err
    assert rowmill("trace", out, "in.jsonl:3") == 0


def test_results_of_a_batch_file_lie_where_status_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"model": "echo", "prompt": "a"}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    source, answers = tmp_path / "batch.jsonl", tmp_path / "answers.jsonl"
    source.write_text(json.dumps(line))
    rowmill("run-batch", "-i", source, "-o", answers, "--engine", "echo")

    found = told(capsys, "status", answers)

    assert found["results"]
    assert all((Path(found["folder"]) / name).exists() for name in found["results"])


def test_settings_of_a_store_are_refused_for_a_file(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, target = run(source, tmp_path / "out"), tmp_path / "all.jsonl"

    assert rowmill("export", out, "-o", target, "--set", "sink.metric=l2") == REFUSED
    assert "`--set` goes with `--to ADDRESS`" in capsys.readouterr().err
    assert not target.exists()


def test_a_report_leaves_nothing_beside_it(source: Path, tmp_path: Path) -> None:
    out, folder = run(source, tmp_path / "out"), tmp_path / "pages"

    assert rowmill("report", out, "-o", folder / "page.html") == 0

    assert [path.name for path in folder.iterdir()] == ["page.html"]


def test_a_page_and_json_are_not_both_written_to_stdout(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = run(source, tmp_path / "out")
    monkeypatch.chdir(tmp_path)

    assert rowmill("report", out, "-o", "-", "--json") == REFUSED
    assert "give one of them" in capsys.readouterr().err
    assert not (tmp_path / "-").exists()
