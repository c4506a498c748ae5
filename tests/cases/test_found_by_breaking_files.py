"""Trouble with files that no case names, found by trying to break reading and writing them."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from rowmill.config import Job
from rowmill.errors import BadSource, ConfigError, StorageError
from rowmill.executors.local import run as run_here
from rowmill.executors.placing import check_places
from rowmill.read import open_source
from rowmill.report.export import export
from rowmill.report.trace import trace
from rowmill.storage import open_storage
from rowmill.write.sound_texts import with_sound_entries, with_sound_texts
from tests.cases.command import OK, results, run, snapshot

NO_UTF8 = pa.array([b"a", b"\xff", b"c"])


def lines(path: Path, *texts: str) -> Path:
    path.write_text(
        "".join(json.dumps({"id": i, "prompt": t}) + "\n" for i, t in enumerate(texts))
    )
    return path


def test_export_joins_no_answers_to_rows_that_were_not_asked(tmp_path: Path) -> None:
    source = lines(tmp_path / "in.jsonl", "a", "b")
    assert run(source, tmp_path / "out").code == OK
    lines(source, "x", "y")

    with pytest.raises(BadSource, match=r"`in\.jsonl` \(changed\)"):
        export(str(tmp_path / "out"), str(tmp_path / "all.jsonl"))
    with pytest.raises(BadSource, match=r"`in\.jsonl` \(changed\)"):
        trace(str(tmp_path / "out"), "1")

    assert not (tmp_path / "all.jsonl").exists()


def test_export_of_unpacked_input_needs_the_spool_and_not_the_file(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl.gz"
    source.write_bytes(gzip.compress(lines(tmp_path / "in.jsonl", "a", "b").read_bytes()))
    assert run(source, tmp_path / "out").code == OK
    source.unlink()

    assert export(str(tmp_path / "out"), str(tmp_path / "all.jsonl")).rows == 2

    shutil.rmtree(tmp_path / "out/spool")
    with pytest.raises(StorageError, match=r"unpacked there of `in\.jsonl\.gz` is gone"):
        export(str(tmp_path / "out"), str(tmp_path / "all.jsonl"))


def test_export_writes_nothing_among_the_files_of_the_run(tmp_path: Path) -> None:
    source, out = lines(tmp_path / "in.jsonl", "a", "b"), tmp_path / "out"
    assert run(source, out).code == OK
    before = snapshot(out)

    (tmp_path / "link").symlink_to(out)
    own = ("results/more.jsonl", "plan/shards.jsonl", "segments/0000000/0001-00000.jsonl")
    for folder, place in itertools.product((out, tmp_path / "link"), own):
        with pytest.raises(ConfigError, match="among the run's own files"):
            export(str(out), str(folder / place))

    assert snapshot(out) == before
    assert export(str(out), str(out / "all.jsonl")).rows == 2


@pytest.mark.parametrize("format_", ["parquet", "arrow", "csv"])
def test_a_carried_text_that_is_no_utf8_leaves_the_results_readable(
    tmp_path: Path, format_: str
) -> None:
    table = pa.table({"prompt": ["x", "y", "z"], "note": NO_UTF8.view(pa.string())})
    pq.write_table(table, tmp_path / "in.parquet")

    done = run(tmp_path / "in.parquet", tmp_path / "out", sets={"output.format": format_})

    assert done.code == OK
    readers = {"parquet": polars.read_parquet, "arrow": polars.read_ipc, "csv": polars.read_csv}
    (part,) = (tmp_path / "out/results").iterdir()
    assert readers[format_](part)["note"].to_list() == ["a", None, "c"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (NO_UTF8.view(pa.string()), ["a", None, "c"]),
        (NO_UTF8.cast(pa.large_binary()).view(pa.large_string()), ["a", None, "c"]),
        (
            pa.DictionaryArray.from_arrays(
                pa.array([2, 1, 0], pa.int8()), NO_UTF8.view(pa.string())
            ),
            ["c", None, "a"],
        ),
        (
            pa.ListArray.from_arrays(
                pa.array([0, 1, 3, 3], pa.int32()), NO_UTF8.view(pa.string())
            ),
            [["a"], None, []],
        ),
    ],
    ids=["string", "large", "dictionary", "list"],
)
def test_only_values_with_unsound_texts_are_taken_out(
    column: pa.Array[Any], expected: list[object]
) -> None:
    batch = pa.RecordBatch.from_arrays([column, pa.array([1, 2, 3])], names=["c", "n"])

    sound = with_sound_texts(batch)

    assert sound.schema == batch.schema
    assert sound.to_pydict() == {"c": expected, "n": [1, 2, 3]}
    sound.validate(full=True)


def test_a_column_that_knows_no_null_gets_an_empty_text() -> None:
    schema = pa.schema([pa.field("c", pa.string(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([NO_UTF8.view(pa.string())], schema=schema)

    assert with_sound_texts(batch).column("c").to_pylist() == ["a", "", "c"]


def test_a_dictionary_with_null_among_its_entries_can_be_written(tmp_path: Path) -> None:
    note = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([None, "q"]))
    table = pa.table({"prompt": ["x", "y", "z"], "note": note})
    with ipc.new_file(str(tmp_path / "in.arrow"), table.schema) as writer:
        writer.write_table(table)

    assert run(tmp_path / "in.arrow", tmp_path / "out").code == OK

    assert [row["note"] for row in results(tmp_path / "out")] == [None, "q", None]
    assert with_sound_entries(note).type == note.type


def test_closed_standard_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(BadSource, match="standard input is closed"):
        open_source(["-"])


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
def test_tables_on_standard_input_are_refused_as_such(format_: str) -> None:
    read = Job.model_validate({"source": "-", "read": {"format": format_}}).read

    with pytest.raises(BadSource, match=f"{format_.capitalize()} is read from a file"):
        open_source(["-"], read=read)


def test_a_ring_of_links_is_refused_in_words(tmp_path: Path) -> None:
    ring = tmp_path / "ring.jsonl"
    ring.symlink_to(ring)
    job = Job.model_validate({"source": str(ring), "output": {"path": str(tmp_path / "out")}})

    check_places(job, open_storage(job.output.path))
    with pytest.raises(BadSource, match=r"ring\.jsonl`: cannot be read"):
        open_source(job.source)


@pytest.mark.parametrize(
    "name", ["run.json", "plan/tasks.json", "plan/shards.jsonl", "commits/0000000.json"]
)
@pytest.mark.parametrize("left", [0, 9])
def test_damage_in_the_folder_of_a_run_is_told(tmp_path: Path, name: str, left: int) -> None:
    source, out = lines(tmp_path / "in.jsonl", "a", "b"), tmp_path / "out"
    job_ = {"source": str(source), "output": {"path": str(out)}, "engine": {"name": "echo"}}
    run_here(Job.model_validate(job_))
    (out / name).write_bytes((out / name).read_bytes()[:left])

    with pytest.raises(StorageError, match=f"{name}`: is damaged"):
        export(str(out), str(tmp_path / "all.jsonl"))
