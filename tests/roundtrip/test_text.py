"""CSV and JSON Lines in, the same columns out: byte for byte, string for string, or typed by the rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rowmill.config import Job
from rowmill.executors.local import run
from rowmill.read.view import ColumnsView
from rowmill.shown.values import values
from rowmill.write.kinds import is_marked
from tests.roundtrip.whole import (
    INPUTS,
    PREFIX,
    RESULTS,
    TABLES,
    Answered,
    csv_of,
    lay,
    lines_of,
    records_of,
    table_of,
    texts_of,
)
from tests.strategies import arrow_tables
from tests.write.drawn import json_rows

Rows = list[dict[str, Any]]
BAD_LINES = ["{", "[1]", '{"a": NaN}', '{"p_x": 1}', "null", '{"a": "\x00"}']
ALL = st.sampled_from(sorted(RESULTS))


def few(examples: int) -> settings:
    return settings(
        max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None
    )


def check_strings(rows: Rows, parts: list[bytes], target: str) -> None:
    """See that texts came back as they were."""
    if target in TABLES:
        table = table_of(parts, target)
        assert all(pa.types.is_string(kind) for kind in table.schema.types)
        assert table.to_pylist() == rows
    elif target.startswith("jsonl"):
        for row, line in zip(rows, lines_of(parts, target), strict=True):
            found = json.loads(line)
            assert {name: found[name] for name in row} == row
            assert all(name.startswith(PREFIX) for name in found.keys() - row.keys())
    else:
        assert records_of(parts, target) == rows


def check_json(rows: Rows, sources: Sequence[bytes], parts: list[bytes], target: str) -> None:
    """See that values are those of the lines: equal where typed, else the text of the value."""
    if target.startswith("jsonl"):
        for source, line in zip(sources, lines_of(parts, target), strict=True):
            head = source.rstrip()[:-1].rstrip()
            assert line.startswith(head + (b"," if len(head) > 1 else b""))
            json.loads(line)
        return
    if target in TABLES:
        check_typed(rows, table_of(parts, target))
        return
    records = records_of(parts, target)
    # Beside values of other kinds a string is in JSON's quotes.
    is_mixed = {
        name: not all(isinstance(row.get(name), str | None) for row in rows)
        for row in rows
        for name in row
    }
    for row, record in zip(rows, records, strict=True):
        for name, text in record.items():
            wanted = row.get(name)
            if is_mixed[name] and text is not None:
                assert json.loads(text) == wanted
            else:
                assert text == wanted


def check_typed(rows: Rows, table: pa.Table) -> None:
    for field, column in zip(table.schema, table.columns, strict=True):
        for row, value in zip(rows, column.to_pylist(), strict=True):
            wanted = row.get(field.name)
            if is_marked(field):
                assert (None if value is None else json.loads(value)) == wanted
            else:
                assert value == wanted
                assert isinstance(value, bool) == isinstance(wanted, bool)
    assert set(table.schema.names) == {name for row in rows for name in row}


def csv_file(folder: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    path = folder / "in/f.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(csv_of(names, rows))
    return path


def check_csv(folder: Path, batch: pa.RecordBatch, targets: Sequence[str]) -> None:
    names, texts = batch.schema.names, texts_of(batch)
    # An empty name gets another, and a NUL is no text of CSV.
    assume(all(names) and batch.num_rows)
    assume(not any("\0" in text for row in [names, *texts] for text in row))
    assume(not any(name.startswith((PREFIX, "\ufeff")) for name in names))
    run_ = Answered(folder, [csv_file(folder, names, texts)])
    rows: Rows = [dict(zip(names, row, strict=True)) for row in texts]
    for target in targets:
        check_strings(rows, run_.publish(target, part_bytes=2000), target)


def check_lines(folder: Path, lines: list[str], kind: str, targets: Sequence[str]) -> None:
    path = folder / f"in/f.{kind}"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    if kind == "jsonl.gz":
        import gzip

        content = gzip.compress(content)
    path.write_bytes(content)
    run_ = Answered(folder, [path])
    rows: Rows = [json.loads(line) for line in lines]
    for target in targets:
        parts = run_.publish(target, part_bytes=2000)
        check_json(rows, [line.encode() for line in lines], parts, target)


@few(12)
@given(batch=arrow_tables(), target=ALL)
def test_csv_gives_the_same_strings(
    tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch, target: str
) -> None:
    check_csv(tmp_path_factory.mktemp("run"), batch, [target])


@few(12)
@given(batch=arrow_tables(), target=ALL, kind=st.sampled_from(["jsonl", "jsonl.gz"]))
def test_lines_of_tables_give_the_same_values(
    tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch, target: str, kind: str
) -> None:
    assume(batch.num_rows)
    lines = [line.decode() for line in ColumnsView(batch).lines()]
    check_lines(tmp_path_factory.mktemp("run"), lines, kind, [target])


@few(12)
@given(rows=json_rows(), target=ALL, indent=st.booleans())
def test_lines_give_the_same_values(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows, target: str, indent: bool
) -> None:
    separators = (" , ", " : ") if indent else None
    lines = [json.dumps(row, ensure_ascii=indent, separators=separators) for row in rows]
    check_lines(tmp_path_factory.mktemp("run"), lines, "jsonl", [target])


@pytest.mark.slow
@few(250)
@given(batch=arrow_tables(max_rows=30))
def test_much_csv(tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch) -> None:
    check_csv(tmp_path_factory.mktemp("run"), batch, list(RESULTS))


@pytest.mark.slow
@few(250)
@given(batch=arrow_tables(max_rows=30), rows=json_rows(), kind=st.sampled_from(INPUTS[-2:]))
def test_many_lines(
    tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch, rows: Rows, kind: str
) -> None:
    lines = [line.decode() for line in ColumnsView(batch).lines()]
    more = [json.dumps(row) for row in rows]
    check_lines(tmp_path_factory.mktemp("run"), [*lines, *more], kind, list(RESULTS))


@few(8)
@given(
    batch=arrow_tables(of_parquet=True, max_rows=5), kind=st.sampled_from(INPUTS), target=ALL
)
def test_folders_add_their_columns_behind(
    tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch, kind: str, target: str
) -> None:
    assume(batch.num_rows and "region" not in batch.schema.names and all(batch.schema.names))
    assume(kind != "csv" or b"\0" not in b"".join(ColumnsView(batch).lines()))
    folder = tmp_path_factory.mktemp("run")
    for region in ("007", "b%20c"):
        lay(folder / f"in/region={region}/f", batch, kind)

    parts = Answered(folder, [folder / "in"]).publish(target)

    wanted = ["007"] * batch.num_rows + ["b c"] * batch.num_rows
    if target in TABLES:
        assert table_of(parts, target)["region"].to_pylist() == wanted
    elif target.startswith("jsonl"):
        found = [json.loads(line) for line in lines_of(parts, target)]
        assert [row["region"] for row in found] == wanted
        assert list(found[0])[: batch.num_columns + 1] == [*batch.schema.names, "region"]
    else:
        assert [record["region"] for record in records_of(parts, target)] == wanted


def shown(column: Any) -> list[Any]:
    whole = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    return values(whole)


def is_alike(old: Any, new: Any, *, is_json: bool) -> bool:
    """Whether a value is what it was, under a wider type or as a text."""
    if old is None or new is None:
        return old is new
    if is_json:
        return bool(json.loads(new) == old) or is_alike(old, json.loads(new), is_json=False)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(
            is_alike(a, b, is_json=False) for a, b in zip(old, new, strict=True)
        )
    if isinstance(old, dict) and isinstance(new, dict):
        return all(
            is_alike(old.get(n), new.get(n), is_json=False) for n in old.keys() | new.keys()
        )
    if isinstance(old, bool) or isinstance(new, bool):
        return bool(old == new or str(old).lower() == new)
    if old == new or _number(old) == _number(new):
        return True
    # A wider float has the same value, and other digits are its shortest ones.
    return any(
        _as_short(old, width) == _as_short(new, width) for width in (np.float32, np.float16)
    )


def _as_short(value: Any, width: Any) -> Any:
    return width(value) if isinstance(value, float) else value


def _number(value: Any) -> Any:
    from fractions import Fraction

    try:
        return Fraction(str(value))
    except ValueError:
        return value


def check_drift(folder: Path, batches: list[pa.RecordBatch], kinds: list[str]) -> None:
    paths = [
        lay(folder / f"in/f{n}", batch, kind)
        for n, (batch, kind) in enumerate(zip(batches, kinds, strict=True))
    ]
    table = table_of(Answered(folder, paths).publish("arrow"), "arrow")

    at = 0
    for batch in batches:
        piece = table.slice(at, batch.num_rows)
        at += batch.num_rows
        for name in table.schema.names:
            found = shown(piece[name].combine_chunks())
            if name not in batch.schema.names:
                assert found == [None] * batch.num_rows
                continue
            is_json = is_marked(table.schema.field(name))
            for old, new in zip(shown(batch.column(name)), found, strict=True):
                assert is_alike(old, new, is_json=is_json), (name, old, new)
    assert at == table.num_rows


BATCHES = st.lists(arrow_tables(of_parquet=True, max_rows=6), min_size=2, max_size=3)


@few(10)
@given(batches=BATCHES)
def test_files_that_differ_keep_their_values(
    tmp_path_factory: pytest.TempPathFactory, batches: list[pa.RecordBatch]
) -> None:
    assume(all(batch.num_rows for batch in batches))
    check_drift(tmp_path_factory.mktemp("run"), batches, ["arrow"] * len(batches))


@pytest.mark.slow
@few(400)
@given(batches=BATCHES, kinds=st.lists(st.sampled_from(TABLES), min_size=3, max_size=3))
def test_many_files_that_differ_keep_their_values(
    tmp_path_factory: pytest.TempPathFactory, batches: list[pa.RecordBatch], kinds: list[str]
) -> None:
    assume(all(batch.num_rows for batch in batches))
    check_drift(tmp_path_factory.mktemp("run"), batches, kinds[: len(batches)])


@few(10)
@given(
    rows=json_rows(),
    bad=st.lists(st.tuples(st.integers(0, 8), st.sampled_from(BAD_LINES)), max_size=4),
    target=ALL,
)
def test_bad_records_harm_no_neighbour(
    tmp_path_factory: pytest.TempPathFactory,
    rows: Rows,
    bad: list[tuple[int, str]],
    target: str,
) -> None:
    """Through the whole program, engine and all."""
    folder = tmp_path_factory.mktemp("run")
    lines = [json.dumps({"prompt": f"say {n}", **row}) for n, row in enumerate(rows)]
    for at, line in bad:
        lines.insert(at, line)
    source = folder / "f.jsonl"
    source.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    form = RESULTS[target]

    summary = run(job_of(source, folder / "out", form.format, form.compression))

    assert (summary.total, summary.failed) == (len(lines), len(bad))
    parts = [(folder / "out" / name).read_bytes() for name in summary.results]
    is_good = [line not in BAD_LINES for line in lines]
    if target in TABLES:
        prompts = table_of(parts, target)["prompt"].to_pylist()
    elif target.startswith("jsonl"):
        prompts = [json.loads(line).get("prompt") for line in lines_of(parts, target)]
    else:
        prompts = [record["prompt"] for record in records_of(parts, target)]
    wanted = iter(f"say {n}" for n in range(len(rows)))
    assert prompts == [next(wanted) if good else None for good in is_good]


def job_of(source: Path, out: Path, format_: str, compression: str) -> Job:
    return Job.model_validate(
        {
            "source": [str(source)],
            "engine": {"name": "echo"},
            "run": {"max_failed_share": 1},
            "output": {
                "path": str(out),
                "prefix": PREFIX,
                "format": format_,
                "compression": compression,
            },
        }
    )


@pytest.mark.parametrize("kind", INPUTS)
def test_every_kind_of_file_runs_to_its_end(tmp_path: Path, kind: str) -> None:
    """Through the whole program: each answer beside its own prompt."""
    prompts = [f"say {n} \u00e9\n\"'" for n in range(30)]
    batch = pa.RecordBatch.from_pydict(
        {"prompt": prompts, "count": pa.array(range(30), pa.int8())}
    )

    summary = run(job_of(lay(tmp_path / "f", batch, kind), tmp_path / "out", "jsonl", "none"))

    written = [(tmp_path / "out" / name).read_bytes() for name in summary.results]
    found = [json.loads(line) for line in lines_of(written, "jsonl")]
    assert (summary.ok, summary.total) == (30, 30)
    assert [row["prompt"] for row in found] == [row["p_text"] for row in found] == prompts
    assert [str(row["count"]) for row in found] == [str(n) for n in range(30)]
