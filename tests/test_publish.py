"""Commits + source -> results: each row once, in input order, its own columns untouched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill import publish as module
from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.executors.vector_length import keep_length
from rowmill.journal import TaskLog, read_commits
from rowmill.outcomes import pack
from rowmill.publish import publish, read_done, vector_length
from rowmill.read import open_source
from rowmill.record import Cut, Places, cut
from rowmill.rows import Outcome, pack_key
from rowmill.storage import Storage, open_storage
from rowmill.write.answer_form import AnswerForm
from rowmill.write.form import Form

LINES = st.sampled_from(['{"a":1}', "  ", '{ "b" : 1.50 }', "{}", '{"c":"\\u00e9 \u00e9"}', ""])


def run_of(folder: Path, files: list[list[str]], task_rows: int) -> Cut:
    """A cut over files of these lines, in shards of a few bytes."""
    source = folder / "in"
    source.mkdir()
    for number, lines in enumerate(files):
        (source / f"f{number}.jsonl").write_text("".join(f"{x}\n" for x in lines), "utf-8")
    found = open_source([str(source)], shard_bytes=20)
    return cut(found.shards, num_lines=found.num_lines, task_rows=task_rows)


def rows_of(run: Cut) -> dict[int, str]:
    """Key -> line of every row."""
    rows = {}
    for shard in run.shards:
        lines = Path(shard.path).read_bytes()[shard.start : shard.stop].decode().split("\n")
        for ordinal, line in enumerate(lines[: shard.num_lines]):
            if line.strip():
                rows[pack_key(shard.index, ordinal)] = line.strip()
    return rows


def answer(storage: Storage, run: Cut, keys: list[int]) -> None:
    """Commit every task, its outcomes in the order of `keys`."""
    places = Places(run)
    for task in range(run.num_tasks):
        log = TaskLog(storage, task, 1)
        mine = [Outcome(k, "ok", text=f"answer {k}") for k in keys if places.task_of(k) == task]
        log.put(pack(mine))
        assert log.commit("w")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_row_is_published_once_in_order_with_its_own_columns(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("run")
    files = data.draw(st.lists(st.lists(LINES, min_size=1, max_size=9), min_size=1, max_size=3))
    run = run_of(folder, files, data.draw(st.integers(1, 7)))
    storage = open_storage(
        data.draw(st.sampled_from([str(folder / "out"), f"memory://{folder}"]))
    )
    rows = rows_of(run)
    answer(storage, run, data.draw(st.permutations(list(rows))))
    prefix = data.draw(st.sampled_from(["rowmill_", "x_"]))

    commits = list(read_commits(storage).values())
    done = publish(
        storage, run, commits, prefix=prefix, part_bytes=data.draw(st.integers(1, 90))
    )

    lines = b"".join(storage.read(part.name) for part in done.parts).splitlines()
    records = [json.loads(line) for line in lines]
    places = Places(run)
    assert [f"answer {key}" for key in rows] == [r[f"{prefix}text"] for r in records]
    assert [places.place_of(key) for key in rows] == [r[f"{prefix}row"] for r in records]
    for line, source in zip(lines, rows.values(), strict=True):
        assert line.startswith(source[:-1].rstrip().encode())
    assert sum(part.num_rows for part in done.parts) == len(rows) == done.counts.ok


def test_a_row_without_an_outcome_is_an_error_not_a_gap(tmp_path: Path) -> None:
    run = run_of(tmp_path, [['{"a":1}', '{"a":2}', '{"a":3}']], 10)
    storage = open_storage(str(tmp_path / "out"))
    answer(storage, run, list(rows_of(run))[:2])

    with pytest.raises(StorageError, match=r"f0\.jsonl:3"):
        publish(storage, run, list(read_commits(storage).values()), prefix="p_", part_bytes=99)

    assert read_done(storage) is None
    assert storage.list(rundir.RESULTS) == []


def test_what_is_published_stays_until_a_commit_comes(tmp_path: Path) -> None:
    run = run_of(tmp_path, [['{"a":1}']], 10)
    storage = open_storage(str(tmp_path / "out"))
    answer(storage, run, list(rows_of(run)))
    commits = list(read_commits(storage).values())
    first = publish(storage, run, commits, prefix="p_", part_bytes=99)
    before = (tmp_path / "out" / first.parts[0].name).stat().st_mtime_ns

    assert first == publish(storage, run, commits, prefix="p_", part_bytes=99)

    assert before == (tmp_path / "out" / first.parts[0].name).stat().st_mtime_ns


def test_the_length_of_vectors_is_read_where_it_was_written_down(tmp_path: Path) -> None:
    run = run_of(tmp_path, [['{"a":1}']], 10)
    storage = open_storage(str(tmp_path / "out"))
    answer(storage, run, list(rows_of(run)))
    commits = list(read_commits(storage).values())
    assert vector_length(storage, commits) == 0
    keep_length(storage, 3)

    for ref in commits[0].segments:
        storage.remove(ref.name)
    assert vector_length(storage, commits) == 3


@pytest.mark.parametrize("kind", ["classify", "score", "rerank"])
def test_answers_without_vectors_are_not_looked_through_for_their_length(
    tmp_path: Path,
    kind: Literal["classify", "score", "rerank"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = run_of(tmp_path, [['{"a":1}']], 10)
    storage = open_storage(str(tmp_path / "out"))
    answer(storage, run, list(rows_of(run)))
    monkeypatch.setattr(module, "vector_length", lambda *_: pytest.fail("looked through"))
    form = Form("parquet", own=AnswerForm(kind=kind))

    commits = list(read_commits(storage).values())
    done = publish(storage, run, commits, prefix="p_", part_bytes=99, form=form)

    assert [part.num_rows for part in done.parts] == [1]
