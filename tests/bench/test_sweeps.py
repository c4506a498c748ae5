"""Settings beside each other over the same rows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rowmill.bench.sweeps import Row, SweepAsked, _with_knee, cells, swept
from rowmill.errors import BadJob
from rowmill.forecast.steady import Rate
from rowmill.tune.sweep import Point
from rowmill.tune.trial import Measured
from tests.bench.tokenizers_of import word_tokenizer


def row(rate: float) -> Row:
    measured = Measured(
        in_flight=1, rate=Rate(rate, rate, rate, 1.0, 8), rows_s=1.0, tokens_s=2.0, hit_rate=0.5
    )
    return Row(
        engine="echo", point=Point(changes={"seats": 1}, measured=measured if rate else None)
    )


def test_the_knee_is_the_first_setting_that_is_nearly_the_best() -> None:
    found = _with_knee([row(0.0), row(50.0), row(96.0), row(100.0)])

    assert [one.is_knee for one in found] == [False, False, True, False]
    assert not any(one.is_knee for one in _with_knee([row(0.0), row(0.0)]))


def test_what_is_not_known_is_a_dash() -> None:
    assert cells(row(5.0))[5:9] == ("50%", "-", "-", "-")


@pytest.mark.parametrize(
    "asked", [SweepAsked(vary=("seats",)), SweepAsked(workload="w77"), SweepAsked(sets=("x",))]
)
def test_mistakes_of_the_command_line_are_named(asked: SweepAsked) -> None:
    with pytest.raises(BadJob):
        swept(asked, tell=print)


@pytest.mark.slow
def test_a_users_file_under_several_settings(tmp_path: Path, python: str) -> None:
    tokenizer = word_tokenizer(tmp_path / "tokenizer")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"word {i}"}) + "\n" for i in range(3000)))
    page, numbers = tmp_path / "page.md", tmp_path / "found.json"
    page.write_text("# Results\n")

    done = subprocess.run(
        [
            *(
                python,
                "-m",
                "rowmill",
                "bench",
                "--engine",
                "echo",
                "--tokenizer",
                str(tokenizer),
            ),
            *("--source", str(rows), "--prompt", "Say: {text}", "--max-tokens", "4"),
            *("--engine-set", "delay_s=0.01", "--vary", "seats=4,16", "--seconds", "1.5"),
            *("--gpu-hour", "2", "--into", str(page), "--out", str(numbers)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert "| echo | seats=16 | " in done.stdout
    assert page.read_text().startswith("# Results\n\n### rows.jsonl, tokenizer, 2 settings\n")
    (table,) = json.loads(numbers.read_text())["tables"]
    assert [one["point"]["changes"] for one in table["rows"]] == [{"seats": 4}, {"seats": 16}]
    assert all(one["million_tokens"] > 0 for one in table["rows"])
    assert sum(one["is_knee"] for one in table["rows"]) == 1
