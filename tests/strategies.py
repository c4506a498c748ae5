"""Hypothesis: rows, outcomes, length mixes, Arrow tables."""

from __future__ import annotations

import decimal
import struct
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from rowmill.rows import Choice, Outcome, Prompts, Sampling
from rowmill.shown.values import reread

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


# One strategy for all rows: a strategy that is made for each row is looked through for each row.
OUTCOMES = st.one_of(
    st.builds(
        Outcome,
        key=st.just(0),
        status=st.just("ok"),
        text=TEXTS,
        finish_reason=st.sampled_from(["stop", "length"]),
        choices=st.lists(st.builds(Choice, index=st.integers(0, 3), text=TEXTS), max_size=2),
        prompt_tokens=st.integers(0, 1000),
        output_tokens=st.integers(0, 1000),
        attempts=st.integers(1, 3),
        copied_from=st.one_of(st.none(), st.just("in.jsonl:1")),
    ),
    st.builds(
        Outcome,
        key=st.just(0),
        status=st.just("error"),
        error_kind=st.sampled_from(["invalid", "too_long", "refused"]),
        error=TEXTS,
    ),
)


def outcomes_of(keys: list[int]) -> st.SearchStrategy[list[Outcome]]:
    """One outcome of either fate for each key, in the given order."""
    some = st.lists(OUTCOMES, min_size=len(keys), max_size=len(keys))
    return some.map(
        lambda outcomes: [_keyed(*pair) for pair in zip(keys, outcomes, strict=True)]
    )


def _keyed(key: int, outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(outcome, key=key)


@st.composite
def windows(draw: st.DrawFn) -> Prompts:
    """A window of prompts in which equal rows are likely."""
    rows = draw(st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=12))
    temperatures = draw(st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=3))
    samplings = [Sampling(temperature=t) for t in temperatures]
    num = len(rows)
    return Prompts(
        keys=draw(st.lists(st.integers(0, 1 << 50), min_size=num, max_size=num, unique=True)),
        ids=np.array([i for row in rows for i in row], np.uint32),
        stops=np.cumsum([len(row) for row in rows], dtype=np.int64),
        max_tokens=draw(st.lists(st.integers(1, 2), min_size=num, max_size=num)),
        samplings=samplings,
        sampling_of=draw(
            st.lists(st.integers(0, len(samplings) - 1), min_size=num, max_size=num)
        ),
        wires=[],
        wire_fields=[],
    )


DOUBLES = st.one_of(
    st.floats(),
    st.integers(0, 2**64 - 1).map(
        lambda bits: struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    ),
)
UNITS: tuple[Literal["s", "ms", "us", "ns"], ...] = ("s", "ms", "us", "ns")
_I64 = st.integers(-(2**63), 2**63 - 1)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    limit = 10**precision - 1
    exact = decimal.Context(prec=100)
    return st.integers(-limit, limit).map(lambda n: decimal.Decimal(n).scaleb(-scale, exact))


def _flat_kinds(*, of_parquet: bool) -> list[tuple[Any, st.SearchStrategy[Any]]]:
    """Types without inner ones, and what their values are made of."""
    day_ms = 86_400_000
    per_day = {unit: 86_400 * 1000**at for at, unit in enumerate(UNITS)}
    kinds: list[tuple[Any, st.SearchStrategy[Any]]] = [
        (pa.null(), st.none()),
        (pa.bool_(), st.booleans()),
        *(
            (getattr(pa, f"int{n}")(), st.integers(-(1 << n - 1), (1 << n - 1) - 1))
            for n in (8, 16, 32, 64)
        ),
        *((getattr(pa, f"uint{n}")(), st.integers(0, (1 << n) - 1)) for n in (8, 16, 32, 64)),
        (pa.float64(), DOUBLES),
        (pa.float32(), st.floats(width=32)),
        (pa.float16(), st.floats(width=16).map(np.float16)),
        *((kind(), TEXTS) for kind in (pa.string, pa.large_string, pa.string_view)),
        *(
            (kind(), st.binary(max_size=20))
            for kind in (pa.binary, pa.large_binary, pa.binary_view)
        ),
        (pa.binary(3), st.binary(min_size=3, max_size=3)),
        (pa.decimal32(9, 4), _decimals(9, 4)),
        (pa.decimal64(18, 0), _decimals(18, 0)),
        (pa.decimal128(38, 3), _decimals(38, 3)),
        (pa.decimal256(76, 70), _decimals(76, 70)),
        (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
        (pa.time32("ms"), st.integers(0, per_day["ms"] - 1)),
        *((pa.time64(unit), st.integers(0, per_day[unit] - 1)) for unit in ("us", "ns")),
        *((pa.duration(unit), _I64) for unit in UNITS),
        *((pa.timestamp(unit), _I64) for unit in ("ms", "us", "ns")),
        *((pa.timestamp(unit, "Europe/Rome"), _I64) for unit in ("ms", "us", "ns")),
    ]
    if not of_parquet:
        kinds += [
            (pa.decimal128(9, -3), _decimals(9, -3)),
            (pa.date64(), st.integers(-(10**10), 10**10).map(lambda day: day * day_ms)),
            (pa.time32("s"), st.integers(0, 86_399)),
            (pa.timestamp("s", "+01:00"), _I64),
            (
                pa.month_day_nano_interval(),
                st.tuples(st.integers(-99, 99), st.integers(-99, 99), _I64),
            ),
        ]
    return kinds


def _nested(inner: Any) -> st.SearchStrategy[Any]:
    """(type, values) of types made of others."""
    name = st.sampled_from(["a", "b", "item", "c.d", "\u00e9"])

    def field(kind: Any) -> st.SearchStrategy[Any]:
        return st.builds(
            pa.field,
            st.just("item"),
            st.just(kind),
            metadata=st.sampled_from([None, {"k": "v"}]),
        )

    def lists(of: Any) -> st.SearchStrategy[Any]:
        kind, found = of
        values = st.lists(_or_null(found), max_size=3)
        ways: tuple[Any, ...] = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
        return st.tuples(st.sampled_from(ways), field(kind)).map(
            lambda way: (way[0](way[1]), values)
        )

    def fixed(of: Any) -> tuple[Any, Any]:
        kind, found = of
        return pa.list_(kind, 2), st.lists(_or_null(found), min_size=2, max_size=2)

    def structs(of: dict[str, Any]) -> tuple[Any, Any]:
        kind = pa.struct([(name, kind) for name, (kind, _) in of.items()])
        return kind, st.fixed_dictionaries({n: _or_null(found) for n, (_, found) in of.items()})

    def maps(of: Any) -> tuple[Any, Any]:
        kind, found = of
        keys = st.sampled_from(["k", "l", ""])
        return pa.map_(pa.string(), kind), st.lists(
            st.tuples(keys, _or_null(found)), max_size=3
        )

    ways = [inner.flatmap(lists), inner.map(maps), inner.map(fixed)]
    ways.append(st.dictionaries(name, inner, min_size=1, max_size=3).map(structs))
    return st.one_of(ways)


def _or_null(found: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), found, found, found)


def _encoded_kinds(*, of_parquet: bool) -> list[tuple[Any, st.SearchStrategy[Any]]]:
    """Dictionaries, and what only Arrow files have."""
    few = st.sampled_from(["", "x", "\u00e9", "\U0001f600 a longer text"])
    kinds: list[tuple[Any, st.SearchStrategy[Any]]] = [
        (pa.dictionary(pa.int8(), pa.string()), few),
        (pa.dictionary(pa.int32(), pa.binary()), few.map(str.encode)),
    ]
    if not of_parquet:
        kinds += [
            (pa.dictionary(pa.uint16(), pa.large_string(), ordered=True), few),
            (pa.dictionary(pa.int32(), pa.int64()), _I64),
            (pa.run_end_encoded(pa.int32(), pa.string()), few),
        ]
    return kinds


def arrow_kinds(*, of_parquet: bool = False) -> st.SearchStrategy[Any]:
    """(type, strategy of values), nested ones too; with `of_parquet`, such as Parquet gives back as they were."""
    flat = st.sampled_from(_flat_kinds(of_parquet=of_parquet))
    # pyarrow's writer of Parquet cannot cut views that lie inside of others.
    inner = flat.filter(lambda of: not (of_parquet and "view" in str(of[0])))
    nested = st.recursive(inner, _nested, max_leaves=3)
    return st.one_of(flat, st.sampled_from(_encoded_kinds(of_parquet=of_parquet)), nested)


@st.composite
def arrow_tables(
    draw: st.DrawFn, *, of_parquet: bool = False, max_rows: int = 12
) -> pa.RecordBatch:
    """A batch of any types, with notes on columns and schema; a slice of a longer one at times."""
    names = draw(
        st.lists(
            st.one_of(st.sampled_from(["a", "a.b", "prompt"]), TEXTS),
            min_size=1,
            max_size=4,
            unique=True,
        )
    )
    num_rows = draw(st.integers(0, max_rows))
    columns, fields = [], []
    for name in names:
        kind, found = draw(arrow_kinds(of_parquet=of_parquet))
        nullable = draw(st.booleans()) or kind == pa.null()
        each = _or_null(found) if nullable else found
        rows = draw(st.lists(each, min_size=num_rows, max_size=num_rows))
        columns.append(pa.array(rows, kind))
        notes = draw(st.sampled_from([None, {"about": "column"}]))
        fields.append(pa.field(name, kind, nullable=nullable, metadata=notes))
    notes_of_table: Any = draw(st.sampled_from([None, {"about": "table"}]))
    schema = pa.schema(fields, metadata=notes_of_table)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return batch.slice(draw(st.integers(0, num_rows)) if draw(st.booleans()) else 0)


def bits(column: Any) -> list[Any]:
    """Values of a column, floats as their bits: no NaN is like another, and minus zero is not zero."""
    kind = _as_bits(column.type)
    return list((column if kind == column.type else reread(column, kind)).to_pylist())


def _as_bits(kind: Any) -> Any:
    if pa.types.is_floating(kind):
        return {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[kind.bit_width]
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_date(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if not kind.num_fields or pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return kind
    fields = [kind.field(at) for at in range(kind.num_fields)]
    inner = [field.with_type(_as_bits(field.type)) for field in fields]
    if pa.types.is_map(kind):
        return pa.map_(inner[0].type.field(0), inner[0].type.field(1))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner[0], kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct(inner)
    lists: dict[str, Any] = {
        "list": pa.list_,
        "large_list": pa.large_list,
        "list_view": pa.list_view,
    }
    name = str(kind).split("<")[0]
    return lists.get(name, pa.large_list_view)(inner[0])
