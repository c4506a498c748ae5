"""Hypothesis: Arrow tables of many types, and JSON values of any kind."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def whole(type_: pa.DataType, bits: int, *, signed: bool) -> Typed:
    low = -(1 << (bits - 1)) if signed else 0
    high = (1 << (bits - 1 if signed else bits)) - 1
    return type_, st.one_of(st.sampled_from([low, high]), st.integers(low, high))


SCALARS: list[Typed] = [
    whole(pa.int8(), 8, signed=True),
    whole(pa.int16(), 16, signed=True),
    whole(pa.int32(), 32, signed=True),
    whole(pa.int64(), 64, signed=True),
    whole(pa.uint8(), 8, signed=False),
    whole(pa.uint32(), 32, signed=False),
    whole(pa.uint64(), 64, signed=False),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float16(), st.floats(width=16, allow_nan=False)),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.binary(), st.binary(max_size=8)),
    (pa.large_binary(), st.binary(max_size=8)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (
        pa.decimal128(10, 2),
        st.integers(-(10**9), 10**9).map(lambda n: decimal.Decimal(n) / 100),
    ),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "Europe/Rome"), st.datetimes(timezones=st.just(dt.UTC))),
    (pa.timestamp("ns", "UTC"), st.integers(-(1 << 62), 1 << 62)),
    (pa.timestamp("ms"), st.integers(-(1 << 40), 1 << 40)),
    (pa.time64("us"), st.times()),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.duration("ns"), st.integers(-(1 << 62), 1 << 62)),
    (pa.null(), st.none()),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
    (pa.dictionary(pa.int32(), pa.string()), TEXT),
]
"""Types that Parquet gives back as they are."""


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        inner.map(lambda t: (pa.list_(t[0]), st.lists(maybe(t), max_size=3))),
        inner.map(lambda t: (pa.large_list(t[0]), st.lists(maybe(t), max_size=3))),
        inner.map(
            lambda t: (
                pa.map_(pa.string(), t[0]),
                st.lists(st.tuples(TEXT, maybe(t)), max_size=3, unique_by=lambda p: p[0]),
            )
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda ts: (
                pa.struct([(f"f{i}", t[0]) for i, t in enumerate(ts)]),
                st.fixed_dictionaries({f"f{i}": maybe(t) for i, t in enumerate(ts)}),
            )
        ),
    )


def maybe(typed: Typed) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), typed[1])


TOP_ONLY = [
    t[0] for t in SCALARS if pa.types.is_dictionary(t[0]) or pa.types.is_string_view(t[0])
]
PLAIN = st.sampled_from([t for t in SCALARS if t[0] not in TOP_ONLY])
TYPES = st.one_of(st.sampled_from(SCALARS), nested(st.one_of(PLAIN, nested(PLAIN))))


@st.composite
def arrow_batches(draw: st.DrawFn, most_rows: int = 6) -> pa.RecordBatch:
    """A batch of any types, with metadata of schema and fields."""
    rows = draw(st.integers(0, most_rows))
    names = draw(st.lists(TEXT, max_size=4, unique=True))
    arrays, fields = [], []
    for name in names:
        type_, values = draw(TYPES)
        drawn = draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows))
        arrays.append(array_of(drawn, type_))
        # A field of nulls alone must be one that may be null.
        nullable = draw(st.booleans()) or None in drawn or pa.types.is_null(type_)
        metadata = draw(st.sampled_from([None, {b"unit": b"m"}]))
        fields.append(pa.field(name, type_, nullable, metadata))
    metadata = draw(st.sampled_from([None, {b"pandas": b"{}"}]))
    if not names:
        return pa.RecordBatch.from_arrays([pa.array(range(rows))], names=["only"])
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata))


def array_of(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Values as an array, whole numbers standing for times."""
    return pa.array(values, type_)


JSON_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.integers(0, 9),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
JSON_VALUES = st.recursive(
    JSON_SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    ),
    max_leaves=8,
)
ALIKE = st.sampled_from(
    [
        st.integers(-5, 5),
        st.integers(0, (1 << 64) - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.one_of(st.integers(-9, 9), st.floats(-1, 1)),
        TEXT,
        st.booleans(),
        st.lists(TEXT, max_size=2),
        st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.lists(TEXT, max_size=2)}),
        JSON_VALUES,
    ]
)


@st.composite
def json_rows(draw: st.DrawFn, most: int = 8) -> list[dict[str, Any]]:
    """Rows whose columns are of one kind, or of any."""
    kinds = {
        name: draw(ALIKE)
        for name in draw(st.lists(st.sampled_from('uvwxyz"é '), max_size=4, unique=True))
    }
    rows = []
    for _ in range(draw(st.integers(1, most))):
        names = draw(st.lists(st.sampled_from(sorted(kinds)), unique=True)) if kinds else []
        rows.append({name: draw(st.one_of(st.none(), kinds[name])) for name in names})
    return rows
