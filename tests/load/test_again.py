"""`rowmill export --to`, once more: rows that were refused, addresses that cannot be, rows whose ids stand in two columns."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.load.runs import done, job_of, rowmill
from tests.load.stores import STORES, store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 12


def run_of(folder: Path, *, first: str = "r") -> str:
    """A run with vectors; the text of one row is longer than the others. Ids begin with `first`."""
    job = job_of(folder, rows=ROWS, task_rows=5)
    text = (folder / "in.jsonl").read_text().replace('"id": "r', f'"id": "{first}')
    (folder / "in.jsonl").write_text(text)
    lines = (folder / "in.jsonl").read_text().splitlines()
    row = json.loads(lines[7])
    lines[7] = json.dumps({**row, "text": row["text"] + ", which goes on"})
    (folder / "in.jsonl").write_text("".join(line + "\n" for line in lines))
    done("run", str(job))
    return str(folder / "out")


@pytest.mark.parametrize("name", ["pgvector", "lancedb"])
def test_rows_that_were_refused_are_loaded_once_settings_let_them(
    name: str, tmp_path: Path
) -> None:
    with store(name) as there:
        out, to = run_of(tmp_path), there.address("docs")
        narrow, wide = "sink.max_text_bytes=20", "sink.max_text_bytes=90"
        metric = ("--set", "sink.metric=dot")

        first = rowmill("export", out, "--to", to, *metric, "--set", narrow)
        assert "1 row" in first.stderr
        assert len(there.read("docs")) == ROWS - 1
        same = rowmill("export", out, "--to", to, *metric, "--set", narrow)
        assert "1 row" in same.stderr

        done("export", out, "--to", to, *metric, "--set", wide)

        assert len(there.read("docs")) == ROWS
        assert ("r7", 0) in there.read("docs")
        # What is there is not loaded once more.
        before = sorted(path.stat().st_mtime_ns for path in Path(out, "loads").rglob("*.json"))
        done("export", out, "--to", to, *metric, "--set", wide)
        after = sorted(path.stat().st_mtime_ns for path in Path(out, "loads").rglob("*.json"))
        assert before == after


def test_a_table_that_two_runs_share_and_lost_is_filled_by_both_again(tmp_path: Path) -> None:
    with store("pgvector") as there:
        to, runs = there.address("docs"), []
        for number, first in enumerate(("r", "s")):
            folder = tmp_path / str(number)
            folder.mkdir()
            runs.append(run_of(folder, first=first))
            done("export", runs[-1], "--to", to, "--set", "sink.metric=dot")
        assert len(there.read("docs")) == 2 * ROWS
        place = to.partition("host=")[2].partition("&")[0]
        with psycopg.connect(host=place, user="postgres", dbname="postgres") as session:
            session.execute("DROP TABLE docs")

        done("export", runs[1], "--to", to, "--set", "sink.metric=dot")
        assert len(there.read("docs")) == ROWS
        said = done("export", runs[0], "--to", to, "--set", "sink.metric=dot")

        assert "holds none of them" in said
        assert len(there.read("docs")) == 2 * ROWS


def test_a_table_that_cannot_be_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    job = job_of(tmp_path, rows=ROWS, task_rows=5)
    for name in ("my table", "ab/c", "..", "ä"):
        to = f"lancedb://{tmp_path}/db?table={name}"

        ended = rowmill("run", str(job), "--set", f"sink.to={to}")

        assert ended.returncode == 2, ended.stderr
        assert f"a table cannot be called `{name}`" in ended.stderr
        assert not (tmp_path / "out").exists()


def test_an_export_that_cannot_be_is_refused_as_a_run_is(tmp_path: Path) -> None:
    out = run_of(tmp_path)
    db = f"lancedb://{tmp_path}/db?table"
    done("export", out, "--to", f"{db}=docs", "--set", "sink.metric=dot")
    other = tmp_path / "other"
    other.mkdir()
    longer = job_of(other, rows=ROWS, task_rows=5)
    done("run", str(longer), "--set", "engine.dimensions=17")

    for place, sets, said in (
        (out, [f"{db}=a b"], "a table cannot be called"),
        (out, [f"{db}=docs", "sink.columns=['nope']"], "a column `nope`"),
        (str(other / "out"), [f"{db}=docs"], "17"),
    ):
        to, *more = sets
        words = [word for text in more for word in ("--set", text)]
        ended = rowmill("export", place, "--to", to, *words)

        assert ended.returncode == 2, ended.stderr
        assert said in ended.stderr
        assert ended.stderr.count(to) <= 1
        assert "goes on" not in ended.stderr


@pytest.mark.parametrize("name", STORES)
def test_each_row_lies_under_the_id_that_it_has(name: str, tmp_path: Path) -> None:
    job = job_of(tmp_path, rows=0, task_rows=5)
    rows: list[dict[str, str | None]] = [
        {"custom_id": "a"},
        {"id": "b"},
        {"custom_id": None, "id": "c"},
        {},
    ]
    rows += [{"custom_id": "", "id": "5"}]
    lines = [json.dumps({"text": f"t{at}", "n": at, **row}) for at, row in enumerate(rows)]
    (tmp_path / "in.jsonl").write_text("".join(line + "\n" for line in lines))
    with store(name) as there:
        to = there.address("docs")
        done("run", str(job), "--set", f"sink.to={to}", "--set", "sink.metric=dot")

        assert sorted(key for key, _ in there.read("docs")) == [
            "5",
            "a",
            "b",
            "c",
            "in.jsonl:4",
        ]
