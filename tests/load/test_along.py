"""A run that loads as it goes: what refuses it, what a store that is down costs, where passwords do not go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.load.runs import DIMENSIONS, done, expected, job_of, rowmill
from tests.load.stores import STORES, Store, store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 400
PASSWORD = "never-in-a-file-71f3"
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def pg() -> Iterator[Store]:
    with store("pgvector") as found:
        yield found


@pytest.mark.parametrize("name", STORES)
def test_a_run_loads_as_it_goes_and_once(name: str, tmp_path: Path) -> None:
    with store(name) as there:
        address = there.address("docs")
        job = str(job_of(tmp_path, rows=ROWS, task_rows=50, sink=address))
        said = done("run", job)
        right = expected(tmp_path / "out")

        assert f"vectors: {ROWS} rows in {address}" in said
        assert len(right) == ROWS
        assert there.read("docs") == right
        assert f"vectors: {ROWS} rows in {address}" in done("run", job)
        assert there.read("docs") == right


@pytest.mark.parametrize("name", STORES)
def test_a_store_of_another_shape_refuses_the_job_before_a_row_is_asked(
    name: str, tmp_path: Path
) -> None:
    with store(name) as there:
        job = str(job_of(tmp_path, rows=20, task_rows=50, sink=there.address("docs")))
        done("run", job)
        other = ["--set", f"output.path={tmp_path / 'other'}"]
        longer = rowmill("run", job, *other, "--set", f"engine.dimensions={DIMENSIONS + 1}")

        assert longer.returncode == 2
        assert f"{DIMENSIONS} dimensions" in longer.stderr
        assert str(DIMENSIONS + 1) in longer.stderr
        assert not (tmp_path / "other").exists()


def test_a_table_with_other_columns_or_another_metric_refuses_the_job(
    pg: Store, tmp_path: Path
) -> None:
    job = str(job_of(tmp_path, rows=20, task_rows=50, sink=pg.address("shape")))
    done("run", job)
    other = ("run", job, "--set", f"output.path={tmp_path / 'other'}")
    metric = rowmill(*other, "--set", "sink.metric=cosine")
    column = rowmill(*other, "--set", 'sink.columns=["txt"]')
    (tmp_path / "in.jsonl").write_text('{"id": "a", "text": "t", "n": 1, "new": 2}\n')
    more = rowmill(*other)

    assert "its index is for dot, the job wants cosine" in metric.stderr
    assert "did you mean `text`?" in column.stderr
    assert "its column `new` is missing, expected bigint" in more.stderr
    assert [2, 2, 2] == [one.returncode for one in (metric, column, more)]
    assert not (tmp_path / "other").exists()


def test_a_store_that_does_not_answer_refuses_a_new_run(tmp_path: Path) -> None:
    address = "pgvector://nobody@127.0.0.1:9/none?table=docs"
    ended = rowmill("run", str(job_of(tmp_path, rows=5, task_rows=5, sink=address)))

    assert ended.returncode == 2
    assert "the store does not answer" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_a_store_that_comes_back_is_loaded_to_the_end(pg: Store, tmp_path: Path) -> None:
    done("run", str(job_of(tmp_path, rows=ROWS, task_rows=20)))
    out, address = tmp_path / "out", pg.address("back")
    pg.stop()
    try:
        loader = subprocess.Popen(
            [sys.executable, "-m", "rowmill", "export", str(out), "--to", address],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert loader.stderr is not None
        first = loader.stderr.readline()
    finally:
        pg.start()
    rest = loader.communicate(timeout=PATIENCE_S)[1]

    assert "the vector store does not answer, trying again" in first
    assert loader.returncode == 0, rest
    assert pg.read("back") == expected(out)


def test_a_store_that_stays_away_costs_no_row(pg: Store, tmp_path: Path) -> None:
    address = pg.address("away")
    job = job_of(tmp_path, rows=ROWS, task_rows=20, sink=address)
    job.write_text(
        job.read_text("utf-8").replace("[engine]\n", "[engine]\nstart_s = 3.0\nseats = 8\n")
        + "retry_s = 1\n",
        "utf-8",
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "rowmill", "run", str(job)], stderr=subprocess.PIPE, text=True
    )
    # Once it exists the store was looked at, and found right.
    give_up_at = time.monotonic() + PATIENCE_S
    while not (tmp_path / "out" / "engines").is_dir() and run.poll() is None:
        assert time.monotonic() < give_up_at
    pg.stop()
    try:
        said = run.communicate(timeout=PATIENCE_S)[1]
    finally:
        pg.start()
    out = tmp_path / "out"

    assert run.returncode == 3, said
    assert len(expected(out)) == ROWS
    assert f"rowmill export {out} --to" in said
    done("export", str(out), "--to", address)
    assert pg.read("away") == expected(out)


def test_a_password_is_in_no_file_and_no_word(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import psycopg

    place = Path(tmp_path_factory.mktemp("pw"))
    with store("pgvector") as there:
        folder = there.address("x").partition("host=")[2].partition("&")[0]
        with psycopg.connect(host=folder, user="postgres", dbname="postgres") as session:
            session.execute(f"CREATE ROLE loader LOGIN PASSWORD '{PASSWORD}'")
            session.execute("CREATE EXTENSION vector")
            session.execute("CREATE SCHEMA own AUTHORIZATION loader")
            rules = Path(folder) / "pg_hba.conf"
            rules.write_text("local all loader scram-sha-256\n" + rules.read_text())
            session.execute("SELECT pg_reload_conf()")
        address = (
            f"pgvector://loader:env:ROWMILL_TEST_PW@/postgres?host={folder}&table=own.docs"
        )
        job = str(job_of(place, rows=50, task_rows=10, sink=address))
        right = {**os.environ, "ROWMILL_TEST_PW": PASSWORD}
        wrong = {**os.environ, "ROWMILL_TEST_PW": PASSWORD + "x"}
        refused = rowmill("run", job, env=wrong)
        unset = rowmill("run", job)
        ended = rowmill("run", job, "--debug", env=right)
        plain = address.replace("env:ROWMILL_TEST_PW", PASSWORD)
        clear = rowmill("run", job, "--set", f"sink.to={plain}", env=right)

        assert [2, 2, 0, 2] == [one.returncode for one in (refused, unset, ended, clear)]
        assert "password authentication failed" in refused.stderr
        assert "`ROWMILL_TEST_PW` is not set" in unset.stderr
        assert "env:NAME" in clear.stderr
        assert len(there.read("own.docs")) == 50
        words = "".join(o.stdout + o.stderr for o in (refused, unset, ended, clear))
        assert PASSWORD not in words
    files = [file for file in place.rglob("*") if file.is_file()]
    assert json.loads((place / "out" / "run.json").read_bytes())["job"]["sink"]["to"] == address
    assert [file for file in files if PASSWORD.encode() in file.read_bytes()] == []


def test_rows_that_were_asked_again_join_the_others(tmp_path: Path) -> None:
    with store("lancedb") as there:
        address = there.address("docs")
        fault = '[[engine.faults]]\ncontains = "number 7"\naction = "error"\n'
        job = job_of(tmp_path, rows=100, task_rows=20, sink=address, more=fault)
        out = tmp_path / "out"
        first = rowmill("run", str(job))
        some = there.read("docs")
        done("retry", str(out), "--set", "engine.faults=[]")

        assert first.returncode == 4
        assert len(some) == 100 - 11
        assert len(expected(out)) == 100
        assert there.read("docs") == expected(out)
        assert f"100 rows in {address}" in done("export", str(out), "--to", address)
        assert "loaded again" not in done("export", str(out), "--to", address)
