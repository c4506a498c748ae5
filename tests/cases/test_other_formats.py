"""Cases of JSON Lines once more, the same rows as CSV, Parquet, Arrow, gzip and a JSON array: the same outcomes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cases.command import (
    INPUTS,
    OK,
    SOME_FAILED,
    TINY,
    check_refused,
    check_whole,
    job,
    kill,
    rowmill,
    run,
    start,
)
from tests.cases.compare import Record, by_id, differences, read_records
from tests.cases.endpoint import Serve
from tests.cases.formats import (
    FIRST_LINE,
    OF_LINES,
    TABLES,
    convert_rows,
    converted,
    moved,
    place,
    suffix_of,
)
from tests.cases.memory import MIB, MemoryWatch
from tests.cases.prompts import SEE_ALL, prompts_of

EVERY = ("csv", "parquet", "arrow", "gzip", "array")


def formats(names: tuple[str, ...], *fast: str) -> list[Any]:
    """All are run, the fast ones each time."""
    return [
        name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names
    ]


def case(number: str, name: str = "input") -> Path:
    return INPUTS / number / f"{name}.jsonl"


def expected(number: str, name: str = "expected") -> list[Record]:
    return read_records(case(number, name))


@pytest.mark.parametrize("format_", formats(EVERY, "csv"))
def test_01_the_long_row_fails_alone(tmp_path: Path, serve: Serve, format_: str) -> None:
    endpoint = serve(max_model_len=512)
    source = converted(case("01"), tmp_path, format_)
    sets = {"engine.tokenizer": str(TINY), "engine.max_model_len": 512}

    finished = run(source, tmp_path / "out", endpoint=endpoint, sets=sets)
    records = check_whole(finished, tmp_path / "out", 12)

    assert differences(expected("01"), records) == []
    assert endpoint.hits == 11
    assert [record["rowmill_row"] for record in records] == [
        place(source, format_, n) for n in range(1, 13)
    ]


@pytest.mark.parametrize("format_", formats(EVERY[1:], "parquet"))
def test_03_rows_with_limits_of_their_own(tmp_path: Path, serve: Serve, format_: str) -> None:
    """`max_tokens` is null where a row has none."""
    sets = {"engine.tokenizer": str(TINY), "engine.max_model_len": 512}

    finished = run(
        converted(case("03"), tmp_path, format_),
        tmp_path / "out",
        endpoint=serve(max_model_len=512),
        sets=sets,
    )
    records = check_whole(finished, tmp_path / "out", 9)

    assert differences(expected("03"), records) == []
    found = by_id(records)
    assert {i for i, r in found.items() if r["rowmill_error_kind"] == "too_long"} == {
        *("b512-m1", "b513-m1", "b500-m13", "b500-m64", "short-m100000")
    }
    assert len(found["b500-m12"]["rowmill_text"]) == 12


@pytest.mark.parametrize("format_", formats(OF_LINES, "array"))
def test_04_odd_prompts_as_lines(tmp_path: Path, serve: Serve, format_: str) -> None:
    finished = run(converted(case("04"), tmp_path, format_), tmp_path / "out", endpoint=serve())

    assert differences(expected("04"), check_whole(finished, tmp_path / "out", 20)) == []


@pytest.mark.parametrize("format_", formats(("csv", "parquet", "arrow"), "parquet"))
def test_04_odd_prompts_in_a_column(tmp_path: Path, serve: Serve, format_: str) -> None:
    """Of texts: a table knows null and empty, CSV empty alone."""
    kinds = str if format_ == "csv" else (str, type(None))
    rows = [r for r in read_records(case("04")) if isinstance(r.get("prompt"), kinds)]
    rows = [r for r in rows if "messages" not in r and (format_ != "csv" or "prompt" in r)]
    endpoint, ids = serve(), {row["id"] for row in rows}

    finished = run(convert_rows(rows, tmp_path, format_), tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", len(rows))

    assert differences([r for r in expected("04") if r["id"] in ids], records) == []
    assert endpoint.hits == 5
    assert {"empty", "space", "newline", "zwsp"} <= ids


@pytest.mark.parametrize("format_", formats((*TABLES, *OF_LINES), "parquet"))
def test_06_conversations_of_tables_render_as_those_of_lines(
    tmp_path: Path, format_: str
) -> None:
    """In a table every turn has every field, null where it means nothing."""
    rows = [r for r in read_records(case("06")) if r["id"] not in ("object", "empty-object")]
    template = {"engine.chat_template": str(INPUTS / "06" / "template.jinja")}

    finished = run(
        convert_rows(rows, tmp_path, format_), tmp_path / "out", sets={**SEE_ALL, **template}
    )
    records = check_whole(finished, tmp_path / "out", len(rows))

    prompts = prompts_of(records)
    wanted = {r["id"]: r["prompt"] for r in expected("06", "expected_prompts")}
    ids = {row["id"] for row in rows}
    assert {i: prompts.get(i) for i in wanted if i in ids} == {
        i: prompt for i, prompt in wanted.items() if i in ids
    }
    failed = [r["id"] for r in records if r["rowmill_error"] is not None]
    assert failed == ["cut", "array"]


def test_15_bad_lines_in_gzip(tmp_path: Path, serve: Serve) -> None:
    endpoint, source = serve(), converted(case("15"), tmp_path, "gzip")

    finished = run(source, tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", 14)

    assert differences(moved(expected("15"), source, "gzip"), records) == []
    assert endpoint.hits == 4


@pytest.mark.slow
def test_20_literals_that_are_no_json_in_gzip(tmp_path: Path, serve: Serve) -> None:
    endpoint, source = serve(), converted(case("20"), tmp_path, "gzip")

    finished = run(source, tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", 9)

    failed = [record["rowmill_row"] for record in records if record["rowmill_error"]]
    assert failed == [place(source, "gzip", n) for n in (2, 3, 4, 5)]
    assert endpoint.hits == 5


@pytest.mark.parametrize("format_", formats(TABLES, "parquet"))
def test_20_odd_floats_of_a_table_are_values(tmp_path: Path, format_: str) -> None:
    scores = [0.5, math.nan, math.inf, -math.inf, None, -0.0, 0.12345678901234568]
    rows = [{"id": str(n), "prompt": "p", "score": score} for n, score in enumerate(scores)]
    source = convert_rows(rows, tmp_path, format_)

    as_lines = run(source, tmp_path / "lines", sets={"output.format": "jsonl"})
    as_table = run(source, tmp_path / "table", sets={"output.format": format_})

    lines = check_whole(as_lines, tmp_path / "lines", len(rows))
    assert [r["score"] for r in lines] == [0.5, "NaN", "Infinity", "-Infinity", None, -0.0,
                                           0.12345678901234568]  # fmt: skip
    table = check_whole(as_table, tmp_path / "table", len(rows))
    assert [repr(record["score"]) for record in table] == [repr(score) for score in scores]
    assert (as_lines.code, as_table.code) == (OK, OK)


@pytest.mark.parametrize("format_", formats(EVERY, "parquet"))
def test_22_repeated_ids_are_refused_with_their_places(tmp_path: Path, format_: str) -> None:
    rows = [{"id": i, "prompt": f"p {n}"} for n, i in enumerate(["a", "b", "a", "", "", "a"])]
    source = convert_rows(rows, tmp_path, format_)

    words = check_refused(run(source, tmp_path / "out"))

    places = ", ".join(place(source, format_, n) for n in (1, 3, 6))
    assert f'"a" at {places};' in words
    assert '"b"' not in words
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("format_", formats(EVERY, "arrow"))
@pytest.mark.parametrize("order", ["input", pytest.param("completion", marks=pytest.mark.slow)])
def test_41_each_answer_stands_beside_its_row(
    tmp_path: Path, serve: Serve, format_: str, order: str
) -> None:
    endpoint = serve(plan=INPUTS / "41" / "plan.json")
    sets = {"output.format": "parquet", "output.order": order}

    finished = run(
        converted(case("41"), tmp_path, format_), tmp_path / "out", endpoint=endpoint, sets=sets
    )
    records = check_whole(finished, tmp_path / "out", 60)

    assert differences(expected("41"), records) == []
    ids = [record["id"] for record in records]
    if order == "input":
        assert ids == [f"o{n:02d}" for n in range(60)]
    else:
        assert sorted(ids[-6:]) == [f"o{n}0" for n in range(6)]


@pytest.mark.parametrize("format_", formats(EVERY, "parquet"))
def test_43_a_killed_run_goes_on(tmp_path: Path, serve: Serve, format_: str) -> None:
    endpoint, out = serve(delay_s=0.05), tmp_path / "out"
    for file in sorted((INPUTS / "43" / "in").iterdir()):
        converted(file, tmp_path / "in", format_)
    sets = {"run.checkpoint_s": 0.2, "output.format": "parquet"}
    arguments = job(tmp_path / "in", out, endpoint=endpoint, sets=sets)
    process = start(arguments, tmp_path / "words")
    endpoint.wait_hits(120, process)
    kill(process)

    finished = rowmill("run", arguments)
    records = check_whole(finished, out, 300)

    assert finished.code == OK
    assert differences(expected("43"), records) == []
    assert endpoint.hits <= 300 + 2 * 16


@pytest.mark.slow
@pytest.mark.parametrize("format_", EVERY)
def test_43_changed_files_are_refused_by_name(tmp_path: Path, format_: str) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    for file in sorted((INPUTS / "43" / "in").iterdir()):
        converted(file, source, format_)
    assert run(source, out).code == OK
    for file in (INPUTS / "43" / "in_changed").iterdir():
        converted(file, source, format_)

    words = check_refused(run(source, out))

    assert all(f"`f{n}{suffix_of(format_)}`" in words for n in range(3))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("format_", EVERY)
@pytest.mark.parametrize("target", ["jsonl", "parquet"])
def test_54_memory_stays_bounded(tmp_path: Path, format_: str, target: str) -> None:
    rows = [
        {"id": f"c{n:06d}", "prompt": f"item {n} " + "padding " * 60} for n in range(200_000)
    ]
    source, out = convert_rows(rows, tmp_path, format_), tmp_path / "out"
    sets = {"engine.tokenizer": "bytes", "engine.model": "tiny", "sampling.max_tokens": 16}
    process = start(
        job(source, out, sets={**sets, "output.format": target}), tmp_path / "words"
    )
    # The library that reads tables is mapped by each process that publishes.
    watch = MemoryWatch(process.pid, own=True)
    try:
        code = process.wait(280)
    finally:
        peak = watch.close()
        process.kill()

    assert code == OK, (tmp_path / "words").read_text()
    assert json.loads((out / "done.json").read_bytes())["counts"]["ok"] == 200_000
    assert peak < 600 * MIB


@pytest.mark.parametrize("format_", formats((*TABLES, *OF_LINES), "parquet"))
def test_61_all_failed_is_told(tmp_path: Path, serve: Serve, format_: str) -> None:
    """Batch lines whose body is a struct."""
    finished = run(converted(case("61"), tmp_path, format_), tmp_path / "out", endpoint=serve())
    records = check_whole(finished, tmp_path / "out", 9)

    assert finished.code == SOME_FAILED
    assert differences(expected("61"), records) == []
    (told,) = finished.told["errors"]
    assert told["rows"] == 9
    assert f"9 x {told['kind']}: " in finished.stderr


@pytest.mark.parametrize("format_", formats(EVERY, "csv"))
@pytest.mark.parametrize("target", ["parquet", pytest.param("jsonl", marks=pytest.mark.slow)])
def test_63_every_character_arrives_and_comes_back(
    tmp_path: Path, serve: Serve, format_: str, target: str
) -> None:
    endpoint = serve()
    source = converted(case("63", "input_escaped"), tmp_path, format_)

    finished = run(source, tmp_path / "out", endpoint=endpoint, sets={"output.format": target})
    records = check_whole(finished, tmp_path / "out", 14)

    assert differences(expected("63"), records) == []
    prompts = {row["id"]: row["prompt"] for row in read_records(case("63"))}
    assert {record["id"]: record["prompt"] for record in records} == prompts
    assert sorted(body["prompt"] for body in endpoint.bodies()) == sorted(prompts.values())
    if target == "parquet":
        text = pq.read_schema(tmp_path / "out/results/part-00000.parquet").field("prompt").type
        assert str(text) == "string"


def test_rows_of_csv_are_counted_as_lines_of_an_editor(tmp_path: Path) -> None:
    source = convert_rows([{"prompt": "x"}, {"prompt": ""}], tmp_path, "csv")

    finished = run(source, tmp_path / "out")
    records = check_whole(finished, tmp_path / "out", 2)

    failed = [record["rowmill_row"] for record in records if record["rowmill_error"]]
    assert failed == [f"input.csv:{FIRST_LINE['csv'] + 1}"]
