"""Answered rows become points, or are refused by name; no store is needed for it."""

from __future__ import annotations

import re
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rowmill.errors import BadSink, UnknownName
from rowmill.rows import Chunk, Outcome
from rowmill.sink_address import parse_sink
from rowmill.write.keyed import pg_sql
from rowmill.write.keyed.parameters import check_parameters, folder_of
from rowmill.write.keyed.points import Choice, PointMaker, Points, Refusal, point_id
from rowmill.write.keyed.wanted import Holds, Wanted

WANTED = Wanted("cosine", "rowmill_key", "rowmill_chunk", "embedding")
D = 3


def vector(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


def outcome(*vectors: bytes) -> Outcome:
    if len(vectors) == 1:
        return Outcome(0, "ok", embedding=vectors[0])
    chunks = [Chunk(10 * at, 10 * at + 10, one) for at, one in enumerate(vectors)]
    return Outcome(0, "ok", embedding=None, chunks=chunks)


def made(
    columns: dict[str, Any],
    outcomes: list[Outcome],
    *,
    holds: Holds = Holds(),  # noqa: B008 - frozen
    **choice: Any,
) -> tuple[Points, list[Refusal]]:
    batch = pa.record_batch(columns)
    names = tuple(choice.pop("columns", columns))
    maker = PointMaker(batch.schema, Choice(names, **choice), WANTED, holds, D)
    return maker.points([f"f:{n + 1}" for n in range(len(outcomes))], batch, outcomes)


GOOD = outcome(vector(1, 2, 3))


def test_no_bad_vector_gets_to_a_store() -> None:
    bad = {
        "1 dimensions, expected 3": outcome(vector(1)),
        "NaN or infinity": outcome(vector(1, float("nan"), 1)),
        "all zeros": outcome(vector(0, 0, 0)),
        "no vector": outcome(),
        "NaN or infinity ": outcome(vector(1, 1, 1), vector(float("inf"), 1, 1)),
    }
    points, refused = made({"id": list("abcdef")}, [*bad.values(), GOOD], keys=("id",))

    assert ["f"] == points.keys
    assert [f"f:{n + 1}" for n in range(len(bad))] == [one.place for one in refused]
    for words, one in zip(bad, refused, strict=True):
        assert words.strip() in one.reason


def test_limits_of_texts_are_bytes_and_cuts_fall_between_characters() -> None:
    texts = ["ok", "ééé", "数据数"]
    holds = Holds(text_bytes=5)
    _, refused = made({"t": texts}, [GOOD] * 3, holds=holds)
    cut, none = made({"t": texts}, [GOOD] * 3, holds=holds, cuts=True)

    assert ["f:2", "f:3"] == [one.place for one in refused]
    assert "6 bytes in UTF-8, limit 5" in refused[0].reason
    assert (["ok", "éé", "数"], []) == (cut.columns.column("t").to_pylist(), none)


def test_a_text_that_a_store_has_no_character_for_is_refused() -> None:
    _, refused = made({"t": ["a\0b", "ok"]}, [GOOD] * 2, holds=Holds(nul=False))

    assert ["f:1"] == [one.place for one in refused]


def test_a_key_comes_once_and_a_row_without_id_has_its_place() -> None:
    points, refused = made({"id": ["a", None, "a"]}, [GOOD] * 3, keys=("id",))

    assert ["a", "f:2"] == points.keys
    assert [("f:3", True)] == [(one.place, "that of f:1" in one.reason) for one in refused]


def test_chunks_stay_together_in_any_request() -> None:
    rows = [outcome(*[vector(n + 1, at, 1) for at in range(n % 4 + 1)]) for n in range(20)]
    points, _ = made({"n": list(range(20))}, rows, spans=("s", "e"))
    pieces = list(points.pieces(most_rows=3, most_bytes=1 << 30))

    assert points.keys == [key for piece in pieces for key in piece.keys]
    assert np.array_equal(points.vectors, np.concatenate([one.vectors for one in pieces]))
    assert all(piece.chunks[0] == 0 for piece in pieces)
    counts = {key: n for n, keys in points.keys_by_count().items() for key in keys}
    assert {f"f:{n + 1}": n % 4 + 1 for n in range(20)} == counts
    spans = points.columns.select(["n", "s", "e"]).to_pylist()
    assert {"n": 0, "s": None, "e": None} == spans[0]
    assert {"n": 1, "s": 10, "e": 20} == spans[2]


def test_the_id_of_a_point_is_a_uuid_and_stays_the_same() -> None:
    ids = {point_id(key, chunk) for key in ("a", "a b/ü", "0:a") for chunk in (0, 1)}

    assert len(ids) == 6
    assert {5} == {uuid.UUID(one).version for one in ids}
    # Written down: with another one, a second run would double what is in a store.
    assert point_id("a", 0) == "42cf900a-26e7-527b-9b66-f41b5ace8991"


def test_names_in_sql_are_quoted() -> None:
    names = pg_sql.names_of('own.do"cs', WANTED)
    schema = pa.schema([pa.field('a"; DROP TABLE x; --', pa.int64())])
    every = [
        pg_sql.create_table(names, schema, D),
        pg_sql.create_staging(names, schema),
        pg_sql.copy_staging(names, schema),
        pg_sql.upsert(names, schema),
    ]

    assert '"own"."do""cs"' == names.whole
    for statement in every:
        assert "DROP" not in re.sub(r'"(?:[^"]|"")*"', "", statement)
    assert '"a""; DROP TABLE x; --" = EXCLUDED."a""; DROP TABLE x; --"' in every[-1]


def test_addresses_say_what_a_store_knows() -> None:
    typo = parse_sink("pgvector://h/d?tables=t")
    with pytest.raises(UnknownName, match="did you mean `table`"):
        check_parameters(typo, table="table")
    with pytest.raises(BadSink, match="names no table"):
        check_parameters(parse_sink("pgvector://h/d"), table="table")
    with pytest.raises(UnknownName, match="known: `milvus\\+http`"):
        check_parameters(
            parse_sink("milvus://h?collection=c"), table="collection", transports=("http",)
        )
    assert folder_of(parse_sink("lancedb:///a/b?table=t")) == "/a/b"
    assert folder_of(parse_sink("lancedb://./a/b?table=t")) == "a/b"
    with pytest.raises(BadSink, match="a folder is written"):
        folder_of(parse_sink("lancedb://a/b?table=t"))
