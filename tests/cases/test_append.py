"""`run --append`: files join a run; only their rows are asked, and what was refused or killed leaves no mark."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rowmill.publish import Done
from rowmill.rows import unpack_key
from tests.cases.command import (
    OK,
    REFUSED,
    SOME_FAILED,
    Finished,
    check_refused,
    job,
    kill,
    paused,
    results,
    rowmill,
    run,
    snapshot,
    start,
)

LIMIT_S = 60.0


class Place:
    """A folder with an input, an output and a log of the rows that an engine started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.log = folder, folder / "out", folder / "starts"
        self.sets: dict[str, object] = {"engine.log": str(self.log)}

    def lines(self, name: str, ids: range, *, prefix: str = "r") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"id": f"{prefix}{n}", "prompt": f"say {prefix}{n}"} for n in ids]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
        return path

    def run(self, *files: Path, append: bool = False, **sets: object) -> Finished:
        options = ["--append"] if append else []
        return run(list(files), self.out, *options, sets={**self.sets, **sets})

    def starts(self) -> Counter[int]:
        return Counter(map(int, self.log.read_bytes().split()))

    def rows(self) -> list[str]:
        return [str(record["rowmill_row"]) for record in results(self.out)]

    def texts_are_right(self) -> bool:
        return all(r["rowmill_text"] == r["prompt"] for r in results(self.out))

    def done(self) -> Done:
        return msgspec.json.decode((self.out / "done.json").read_bytes(), type=Done)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def places_of(name: str, rows: range) -> list[str]:
    return [f"{name}:{n + 1}" for n in rows]


def test_only_new_rows_are_asked_and_old_ones_stand_before_them(place: Place) -> None:
    old, new = place.lines("old.jsonl", range(5)), place.lines("a.jsonl", range(5, 9))
    assert place.run(old).code == OK

    appended = place.run(new, append=True)
    again = place.run(old, new, append=True)
    plain = place.run(old)

    assert (appended.code, appended.told["total"], appended.told["asked"]) == (OK, 9, 4)
    assert (again.code, again.told["asked"]) == (OK, 0)
    assert "no file joins the run" in again.stderr
    assert (plain.code, plain.told["total"], plain.told["asked"]) == (OK, 9, 0)
    assert set(place.starts().values()) == {1}
    assert len(place.starts()) == 9
    assert place.rows() == places_of("old.jsonl", range(5)) + places_of("a.jsonl", range(4))
    assert place.texts_are_right()


@pytest.mark.slow
def test_files_of_every_format_join_one_after_the_other(place: Place) -> None:
    folder = place.folder
    place.run(place.lines("a.jsonl", range(3)))
    packed = folder / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(place.lines("x", range(3, 5)).read_bytes()))
    table = folder / "c.csv"
    table.write_text('id,prompt\nr5,say r5\nr6,"say\nr6"\n', "utf-8")
    columns = folder / "d.parquet"
    pq.write_table(pa.table({"id": ["r7", "r8"], "prompt": ["say r7", "say r8"]}), columns)

    told = [place.run(file, append=True).told for file in (packed, table, columns)]

    assert [(one["total"], one["asked"]) for one in told] == [(5, 2), (7, 2), (9, 2)]
    assert [r["id"] for r in results(place.out)] == [f"r{n}" for n in range(9)]
    assert place.texts_are_right()
    assert set(place.starts().values()) == {1}


@pytest.mark.slow
def test_a_file_of_a_known_name_elsewhere_is_a_file_of_its_own(place: Place) -> None:
    old, new = place.lines("a/x.jsonl", range(3)), place.lines("b/x.jsonl", range(3, 7))
    place.run(old)

    first = place.run(new, append=True)
    both = place.run(old, new)
    again = place.run(new, append=True)

    assert (first.told["total"], first.told["asked"]) == (7, 4)
    assert (both.code, both.told["asked"]) == (OK, 0)
    assert (again.code, again.told["asked"]) == (OK, 0)
    assert place.rows() == places_of("x.jsonl", range(3)) + places_of("b/x.jsonl", range(4))


@pytest.mark.slow
def test_a_known_file_that_moved_is_no_new_one(place: Place) -> None:
    old = place.lines("a/x.jsonl", range(3))
    place.run(old)
    (place.folder / "b").mkdir()
    old = old.rename(place.folder / "b/x.jsonl")

    told = place.run(old, place.lines("y.jsonl", range(3, 5)), append=True).told

    assert (told["total"], told["asked"]) == (5, 2)
    assert set(place.starts().values()) == {1}


@pytest.mark.slow
def test_a_folder_that_grew_is_named_as_it_was(place: Place) -> None:
    place.lines("in/b.jsonl", range(3))
    place.run(place.folder / "in")
    place.lines("in/a.jsonl", range(3, 5))

    refused = place.run(place.folder / "in")
    told = place.run(place.folder / "in", append=True).told

    assert "--append" in check_refused(refused)
    assert (told["total"], told["asked"]) == (5, 2)
    assert place.rows() == places_of("b.jsonl", range(3)) + places_of("a.jsonl", range(2))


@pytest.mark.slow
def test_what_is_refused_leaves_run_and_results_as_they_were(place: Place) -> None:
    old = place.lines("old.jsonl", range(4))
    place.run(old)
    lasting = (
        *("results", "commits", "segments", "plan", "spool", "leases/0"),
        *("run.json", "done.json"),
    )

    def left() -> dict[str, bytes]:
        found = snapshot(place.out)
        return {name: text for name, text in found.items() if text and name.startswith(lasting)}

    before = left()
    twice = place.folder / "twice.jsonl.gz"
    twice.write_bytes(gzip.compress(b'{"id": 1, "prompt": "a"}\n{"id": 1, "prompt": "b"}\n'))
    wrong = place.folder / "wrong.csv"
    wrong.write_text("id,text\n1,a\n", "utf-8")
    cut = place.folder / "cut.jsonl.gz"
    cut.write_bytes(twice.read_bytes()[:-9])

    told = [check_refused(place.run(file, append=True)) for file in (twice, wrong, cut)]
    limited = check_refused(place.run(old, append=True, **{"run.limit": 3}))
    warmer = check_refused(
        place.run(
            place.lines("n.jsonl", range(9, 11)),
            append=True,
            **{"engine.seats": 2, "sampling.temperature": 1},
        )
    )

    assert "twice.jsonl.gz:2" in told[0]
    assert "prompt" in told[1]
    assert "cut.jsonl.gz" in told[2]
    assert "run.limit" in limited
    assert "sampling.temperature" in warmer
    assert left() == before
    assert place.run(place.folder / "n.jsonl", append=True).told["asked"] == 2


@pytest.mark.slow
def test_an_old_file_that_changed_is_refused(place: Place) -> None:
    old = place.lines("old.jsonl", range(4))
    place.run(old)
    new = place.lines("new.jsonl", range(4, 6))
    place.lines("old.jsonl", range(3))

    named = check_refused(place.run(old, new, append=True))
    unnamed = check_refused(place.run(new, append=True))

    assert "`old.jsonl` (changed)" in named
    assert "`old.jsonl` (changed)" in unnamed


@pytest.mark.slow
def test_without_a_run_one_begins_and_that_is_said(place: Place) -> None:
    begun = place.run(place.lines("a.jsonl", range(3)), append=True)
    limited = place.folder / "limited"
    refused = run(place.folder / "a.jsonl", limited, "--append", sets={"run.limit": 2})

    assert (begun.code, begun.told["asked"]) == (OK, 3)
    assert "there was no run to append to" in begun.stderr
    check_refused(refused)
    assert not limited.exists()


@pytest.mark.parametrize("goes_on", ["the same", pytest.param("plain", marks=pytest.mark.slow)])
def test_a_killed_append_is_gone_on_with(place: Place, goes_on: str) -> None:
    """By the same command, or by the one that the run began with."""
    place.sets |= {"engine.delay_s": 0.02, "engine.seats": 4, "run.task_rows": 20}
    # Until so many rows are answered, no more are in flight than there are seats.
    place.sets["run.max_failed_after"] = 100_000
    old = place.lines("old.jsonl", range(30))
    new = place.folder / "new.jsonl.gz"
    new.write_bytes(gzip.compress(place.lines("n", range(30, 130)).read_bytes()))
    place.run(old)
    command = job(new, place.out, "--append", sets=place.sets)
    process = start(command, place.folder / "words")
    try:
        give_up_at = time.monotonic() + LIMIT_S
        while len(list((place.out / "commits").glob("*"))) < 4:
            assert process.poll() is None, (place.folder / "words").read_text("utf-8")
            assert time.monotonic() < give_up_at
            time.sleep(0.001)
    finally:
        kill(process)
    status = rowmill("status", [str(place.out)]).told

    files = [new] if goes_on == "the same" else [old]
    ended = place.run(*files, append=goes_on == "the same")

    assert (status["state"], status["total"]) == ("interrupted", 130)
    assert 30 < status["ok"] < 130
    assert (ended.code, ended.told["total"]) == (OK, 130)
    assert sum(place.starts().values()) - 130 <= 4
    assert place.rows() == places_of("old.jsonl", range(30)) + places_of(new.name, range(100))
    assert place.texts_are_right()


@pytest.mark.slow
def test_files_join_a_run_that_is_not_done(place: Place) -> None:
    place.sets |= {"engine.delay_s": 0.2, "engine.seats": 4, "run.task_rows": 20}
    place.sets["run.max_failed_after"] = 100_000
    old, new = place.lines("old.jsonl", range(90)), place.lines("new.jsonl", range(90, 100))
    process = start(job(old, place.out, sets=place.sets), place.folder / "words")
    try:
        while not list((place.out / "commits").glob("*")):
            assert process.poll() is None, (place.folder / "words").read_text("utf-8")
            time.sleep(0.001)
        with paused(process):
            during = place.run(new, append=True)
    finally:
        kill(process)

    told = place.run(new, append=True, **{"engine.delay_s": 0.001}).told

    assert "is in use by" in check_refused(during)
    assert told["total"] == 100
    assert 10 < told["asked"] < 100
    assert place.rows() == places_of("old.jsonl", range(90)) + places_of("new.jsonl", range(10))


@pytest.mark.slow
def test_an_appended_run_is_looked_at_and_retried_as_any_other(place: Place) -> None:
    place.sets["engine.faults"] = '[{contains = "r6", action = "error"}]'
    place.run(place.lines("old.jsonl", range(4)))
    assert place.run(place.lines("new.jsonl", range(4, 8)), append=True).code == SOME_FAILED
    kept = place.out / place.done().parts[0].name
    before = kept.stat().st_mtime_ns

    status = rowmill("status", [str(place.out)]).told
    trace = rowmill("trace", [str(place.out), "r6"]).told
    target = place.folder / "all.parquet"
    exported = rowmill("export", [str(place.out), "-o", str(target)])
    retried = rowmill("retry", [str(place.out), "--set", "engine.faults=[]"])

    assert (status["state"], status["total"], status["failed"]) == ("finished", 8, 1)
    assert trace["place"] == "new.jsonl:3"
    assert exported.code == OK
    assert pq.read_table(target)["id"].to_pylist() == [f"r{n}" for n in range(8)]
    assert (retried.code, retried.told["asked"]) == (OK, 1)
    assert place.texts_are_right()
    assert kept.stat().st_mtime_ns == before


@pytest.mark.slow
def test_of_two_appends_at_once_one_is_refused_and_can_be_given_again(place: Place) -> None:
    place.sets |= {"engine.delay_s": 0.3, "engine.seats": 1}
    place.run(place.lines("old.jsonl", range(1)))
    more = [place.lines(f"{name}.jsonl", range(3), prefix=name) for name in "ab"]
    log = place.folder / "words"
    first = start(job(more[0], place.out, "--append", sets=place.sets), log)
    while not (place.out / "plan/append-001.json").exists():
        assert first.poll() is None, log.read_text("utf-8")
        time.sleep(0.001)

    with paused(first):
        second = place.run(more[1], append=True)
    assert first.wait(LIMIT_S) == OK
    third = place.run(more[1], append=True)

    assert second.code == REFUSED
    assert third.told["total"] == 7
    assert set(place.starts().values()) == {1}
    shards = {unpack_key(key)[0] for key in place.starts()}
    assert shards == {0, 1, 2}
