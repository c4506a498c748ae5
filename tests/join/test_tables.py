"""Outcomes + source -> result files of every format: each row once, beside its own columns."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from backports import zstd
from hypothesis import given, settings

from rowmill.errors import StorageError
from rowmill.join.columns import carried_columns
from rowmill.join.part import Columns, packed_schema
from rowmill.join.tables import TableJoiner
from rowmill.journal import TaskLog, read_commits
from rowmill.outcomes import pack
from rowmill.publish import Done, publish
from rowmill.read import open_source
from rowmill.record import Cut, Places, cut
from rowmill.rows import Choice, Outcome, Shard, pack_key
from rowmill.storage import LocalStorage, Storage
from rowmill.write import json_columns
from rowmill.write.form import Form
from rowmill.write.kinds import is_marked
from tests.write.drawn import arrow_batches, json_rows


class Run(msgspec.Struct):
    """A run whose rows are all answered."""

    cut: Cut
    storage: Storage
    lines: dict[int, bytes]
    """Key -> source line."""

    def publish(self, form: Form, *, part_bytes: int = 1 << 28) -> Done:
        commits = list(read_commits(self.storage).values())
        return publish(
            self.storage, self.cut, commits, prefix="p_", part_bytes=part_bytes, form=form
        )

    def contents(self, form: Form, *, part_bytes: int = 1 << 28) -> list[bytes]:
        done = self.publish(form, part_bytes=part_bytes)
        return [self.storage.read(part.name) for part in done.parts]

    def places(self) -> list[str]:
        places = Places(self.cut)
        return [places.place_of(key) for key in self.lines]


def answered(
    folder: Path, files: list[list[str]], *, task_rows: int = 1000, backwards: bool = False
) -> Run:
    """A run over files of these lines; rows that are no objects are answered as unreadable."""
    source = folder / "in"
    source.mkdir(parents=True)
    for number, lines in enumerate(files):
        content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        (source / f"f{number}.jsonl").write_bytes(content)
    found = open_source([str(source)], shard_bytes=200)
    run = Run(
        cut(found.shards, num_lines=found.num_lines, task_rows=task_rows),
        LocalStorage(str(folder / "out")),
        {},
    )
    for shard in found.shards:
        content = Path(shard.path).read_bytes()[shard.start : shard.stop]
        for ordinal, line in enumerate(content.split(b"\n")[: shard.num_lines]):
            if line.strip():
                run.lines[pack_key(shard.index, ordinal)] = line.strip()
    places = Places(run.cut)
    for task in range(run.cut.num_tasks):
        log = TaskLog(run.storage, task, 1)
        mine = [key for key in run.lines if places.task_of(key) == task]
        for key in reversed(mine) if backwards else mine:
            log.put(pack([outcome_of(key, run.lines[key])]))
        assert log.commit("w")
    return run


def outcome_of(key: int, line: bytes) -> Outcome:
    try:
        is_row = isinstance(msgspec.json.decode(line, type=dict[str, msgspec.Raw]), dict)
    except msgspec.MsgspecError:
        is_row = b"\\ud800" in line
    if not is_row or b'"p_' in line:
        return Outcome(key, "error", error_kind="unreadable", error="no row")
    logprobs = [{"token": "a", "logprob": -0.5, "top": {"a": None}}]
    choices = [Choice(0, "x", "stop", [1, 2], logprobs)]
    return Outcome(key, "ok", text=f"answer {key}", choices=choices, seconds=0.25)


def table_of(run: Run, form: Form, *, part_bytes: int = 1 << 28) -> pa.Table:
    """All parts together, as a reader of the folder sees them."""
    run.publish(form, part_bytes=part_bytes)
    folder = run.storage.path("results/x")
    assert folder is not None
    format_ = "ipc" if form.format == "arrow" else "parquet"
    return ds.dataset(str(folder.parent), format=format_).to_table()


@settings(max_examples=15)
@given(rows=json_rows())
def test_json_rows_come_back_equal_from_parquet(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    run = answered(folder, [[json.dumps(row) for row in rows]], task_rows=3, backwards=True)

    table = table_of(run, Form("parquet", "zstd"))

    assert table["p_row"].to_pylist() == run.places()
    for field in table.schema:
        if field.name.startswith("p_"):
            continue
        for row, value in zip(rows, table[field.name].to_pylist(), strict=True):
            wanted = row.get(field.name)
            is_text = is_marked(field) and wanted is not None
            assert value == (json.dumps(wanted) if is_text else wanted)


@settings(max_examples=25)
@given(batch=arrow_batches())
def test_carried_columns_of_a_table_are_untouched(batch: pa.RecordBatch) -> None:
    columns = Columns(schema=packed_schema(batch.schema))
    joiner = TableJoiner(columns, "p_", Form("parquet"))
    shard = Shard(0, "t.parquet", "t.parquet", 0, batch.num_rows, 1, batch.num_rows, "parquet")
    ordinals = list(range(batch.num_rows))
    lines = [msgspec.json.encode(Outcome(n, "ok", text=str(n))) for n in ordinals]

    joined = joiner.batch(shard, ordinals, lines, lambda _: batch)

    carried = joined.select(batch.schema.names) if batch.num_columns else joined
    assert carried.equals(batch, check_metadata=True)
    assert joined.column("p_row").to_pylist() == [f"t.parquet:{n + 1}" for n in ordinals]


MIXED = [
    ['{"id": "a", "meta": [0, 4, "Protein"]}', '{"id": "b"}', '{"id": "c", "meta": {}}'],
    ['{"id": "d", "meta": null, "late": 1}', "", '{"late": 18446744073709551615, "id": "e"}'],
]


def test_mixed_and_late_columns_are_kept_in_every_part(tmp_path: Path) -> None:
    run = answered(tmp_path, MIXED)

    table = table_of(run, Form("parquet"), part_bytes=200)

    assert len(run.storage.list("results/")) > 1
    assert table["id"].to_pylist() == list("abcde")
    assert table["meta"].to_pylist() == ['[0, 4, "Protein"]', None, "{}", None, None]
    assert table["late"].to_pylist() == [None, None, None, 1, 2**64 - 1]
    assert is_marked(table.schema.field("meta"))


BAD = [
    '{"id": "a", "n": 1}',
    "{broken",
    '{"id": "c", "n": NaN}',
    '{"id": 7, "p_text": "clash"}',
    '{"id": "e", "n": 2, "s": "\\ud800"}',
    '{"id": "f", "n": 1, "n": 3}',
    '["a list"]',
]


def test_of_a_bad_row_is_carried_what_can_be_read(tmp_path: Path) -> None:
    run = answered(tmp_path, [BAD])

    table = table_of(run, Form("parquet"))

    assert table.schema.field("n").type == pa.int64()
    assert [name for name in table.schema.names if name.startswith("p_text")] == ["p_text"]
    # The clashing row is an object: its other columns are read as those of any row.
    assert table["id"].to_pylist() == ['"a"', None, '"c"', "7", '"e"', '"f"', None]
    assert table["n"].to_pylist() == [1, None, None, None, 2, 3, None]
    assert table["s"].to_pylist() == [None, None, None, None, '"\\ud800"', None, None]
    kinds = ["unreadable" if n in (1, 2, 3, 6) else None for n in range(7)]
    assert table["p_error_kind"].to_pylist() == kinds


@pytest.mark.parametrize(
    ("good", "bad", "found"),
    [
        ('"a"', "7", None),
        ("1", '"a"', None),
        ("1", "7", 7),
        ("1", "1.5", None),
        ("1.5", "7", 7.0),
        ("1.5", "9007199254740993", None),
        ("1.5", "2.50", 2.5),
        ("18446744073709551615", "7", 7),
        ("18446744073709551615", "-7", None),
        ("1", "18446744073709551615", None),
        ("true", "false", False),
        ("1", "true", None),
        ('"a"', '"b"', "b"),
    ],
)
def test_the_id_of_a_line_that_is_no_json_is_carried_where_it_fits(
    tmp_path: Path, good: str, bad: str, found: object
) -> None:
    run = answered(tmp_path, [[f'{{"id": {good}}}', f'{{"id": {bad}, "n": NaN}}']])

    assert table_of(run, Form("parquet"))["id"].to_pylist()[1] == found


@pytest.mark.parametrize(
    "form", [Form("parquet", "gzip"), Form("arrow", "zstd"), Form("arrow")]
)
def test_polars_and_pyarrow_read_each_part(tmp_path: Path, form: Form) -> None:
    run = answered(tmp_path, MIXED)

    parts = run.contents(form, part_bytes=200)

    load = pl.read_parquet if form.format == "parquet" else pl.read_ipc
    frames = [load(io.BytesIO(part)) for part in parts]
    assert [row for frame in frames for row in frame["id"]] == list("abcde")
    assert table_of(run, form, part_bytes=200)["p_choices"].to_pylist()[0] == [
        {
            "index": 0,
            "text": "x",
            "finish_reason": "stop",
            "token_ids": [1, 2],
            "logprobs": '[{"token":"a","logprob":-0.5,"top":{"a":null}}]',
            "parsed": None,
            "violation": None,
            "reasoning": None,
            "tool_calls": [],
        }
    ]


def test_csv_keeps_the_text_of_values_and_tells_null_from_empty(tmp_path: Path) -> None:
    line = '{"id": "", "n": 1.50, "l": [1,  2], "t": "a\\n\\"b\\"", "z": null}'
    run = answered(tmp_path, [[line]])

    (content,) = run.contents(Form("csv"))

    names, values = csv.reader(io.StringIO(content.decode(), newline=""), strict=True)
    row = dict(zip(names, values, strict=True))
    assert (row["n"], row["l"], row["t"], row["z"]) == ("1.50", "[1,  2]", 'a\n"b"', "")
    assert content.decode().split("\n")[1].startswith('"",1.50,"[1,  2]","a')


@pytest.mark.parametrize("format_", ["jsonl", "csv"])
def test_compressed_files_hold_what_plain_ones_do(tmp_path: Path, format_: Any) -> None:
    run = answered(tmp_path, MIXED)

    plain = run.contents(Form(format_))
    packed = run.contents(Form(format_, "gzip"))
    assert [gzip.decompress(part) for part in packed] == plain
    assert run.storage.list("results/") == [f"results/part-00000.{format_}.gz"]
    assert [zstd.decompress(part) for part in run.contents(Form(format_, "zstd"))] == plain
    assert run.contents(Form(format_, "gzip")) == packed
    assert packed[0][4:8] == bytes(4)


@pytest.mark.parametrize("format_", ["jsonl", "parquet", "arrow"])
def test_completion_order_is_that_of_answers(tmp_path: Path, format_: Any) -> None:
    lines = [f'{{"n": {n}}}' for n in range(23)]
    run = answered(tmp_path, [lines[:9], lines[9:]], task_rows=5, backwards=True)
    form = Form(format_, order="completion")
    wanted = [n for task in range(5) for n in reversed(range(23)[5 * task : 5 * task + 5])]

    for part_bytes in (1 << 28, 500):
        contents = run.contents(form, part_bytes=part_bytes)
        if format_ == "jsonl":
            records = [json.loads(line) for part in contents for line in part.splitlines()]
        else:
            records = table_of(run, form, part_bytes=part_bytes).to_pylist()
        assert [record["n"] for record in records] == wanted
        assert [run.places()[n] for n in wanted] == [record["p_row"] for record in records]


def test_a_task_whose_order_was_lost_stands_in_input_order(tmp_path: Path) -> None:
    run = answered(tmp_path, [['{"n": 1}', '{"n": 2}']], backwards=True)
    for name in run.storage.list("arrivals/"):
        run.storage.remove(name)

    assert table_of(run, Form("parquet", order="completion"))["n"].to_pylist() == [1, 2]


def test_another_format_takes_the_place_of_the_first(tmp_path: Path) -> None:
    run = answered(tmp_path, MIXED)

    for form in (
        Form(),
        Form("parquet"),
        Form("csv", "zstd"),
        Form(order="completion"),
        Form(),
    ):
        done = run.publish(form)
        assert run.storage.list("results/") == [part.name for part in done.parts]
        assert done == run.publish(form)


@pytest.mark.parametrize("format_", ["jsonl", "parquet", "arrow", "csv"])
def test_an_input_of_no_rows_has_an_empty_file(tmp_path: Path, format_: Any) -> None:
    run = answered(tmp_path, [["", "  "]])

    (content,) = run.contents(Form(format_))

    if format_ == "jsonl":
        assert content == b""
    elif format_ == "csv":
        assert content.startswith(b"p_row,p_status,")
        assert content.count(b"\n") == 1
    else:
        assert table_of(run, Form(format_)).num_rows == 0


def test_a_row_without_an_outcome_is_an_error_not_a_gap(tmp_path: Path) -> None:
    run = answered(tmp_path, [['{"n": 1}', '{"n": 2}']])
    (name,) = run.storage.list("segments/")
    line = run.storage.read(name).splitlines(keepends=True)[0]
    commit = next(iter(read_commits(run.storage).values()))
    run.storage.replace(name, line)
    ref = msgspec.structs.replace(commit.segments[0], num_bytes=len(line), digest="")
    broken = msgspec.structs.replace(commit, segments=[ref])

    for form in (Form("parquet"), Form(), Form("csv", order="completion")):
        with pytest.raises(StorageError):
            publish(run.storage, run.cut, [broken], prefix="p_", part_bytes=1 << 28, form=form)
        assert run.storage.list("results/") == []


def test_more_keys_than_columns_are_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_columns, "MOST_COLUMNS", 3)
    run = answered(tmp_path, [['{"a": 1, "b": 1}', '{"c": 1, "d": 1}']])

    with pytest.raises(StorageError, match="distinct keys"):
        run.publish(Form("parquet"))
    assert run.publish(Form()).parts[0].num_rows == 2


def test_types_are_the_same_however_shards_are_cut(tmp_path: Path) -> None:
    lines = [
        json.dumps({"a": n, "b": [n, None], "c": {"x": n / 4, "y": []}}) for n in range(50)
    ]
    whole = answered(tmp_path / "whole", [lines])
    shards = open_source([str(tmp_path / "whole/in")], shard_bytes=10**6).shards

    cut_small = [(shard, shard.num_lines) for shard in whole.cut.shards]
    cut_large = [(shard, shard.num_lines) for shard in shards]

    assert len(cut_small) > len(cut_large) == 1
    form = Form("parquet")
    assert carried_columns(cut_small, form, "p_") == carried_columns(cut_large, form, "p_")
