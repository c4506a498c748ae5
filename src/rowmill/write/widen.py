"""Types of one column in many files -> the narrowest type that holds every value of each; also what a file can hold.

Promises: `widest` depends on the set of types alone; None where only text would hold all.
Knows nothing of: values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_DECIMAL, LONGEST_DECIMAL_256 = 38, 76


def widest(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type that holds the values of all, None where there is none."""
    import pyarrow as pa

    kinds = _distinct([t for t in types if not pa.types.is_null(t)])
    if not kinds:
        return pa.null()
    if len(kinds) == 1:
        return kinds[0]
    kinds = _distinct([_without_encoding(kind) for kind in kinds])
    if len(kinds) == 1:
        return kinds[0]
    for holds, widen in _widenings():
        if all(map(holds, kinds)):
            return widen(kinds)
    return None


def storable(type_: pa.DataType, format_: str) -> pa.DataType | None:
    """The nearest type of equal values that a file of the format keeps, and other readers read.

    Args:
        format_: `parquet` or `arrow`.
    Returns: None where only JSON text would hold the values.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_union(type_) or types.is_interval(type_):
        return None
    if types.is_run_end_encoded(type_):
        return storable(type_.value_type, format_)
    if types.is_dictionary(type_):
        # An Arrow file wants one dictionary for all its batches, and batches are written as they come.
        is_kept = format_ == "parquet" and types.is_string(type_.value_type)
        return type_ if is_kept else storable(type_.value_type, format_)
    if types.is_nested(type_):
        return _storable_nested(type_, format_)
    return _in_parquet(type_) if format_ == "parquet" else type_


def _in_parquet(type_: pa.DataType) -> pa.DataType | None:
    """Parquet knows no seconds, no days counted in milliseconds, no decimals counted in thousands."""
    import pyarrow as pa

    if pa.types.is_decimal(type_) and type_.scale < 0:
        digits = type_.precision - type_.scale
        if digits > LONGEST_DECIMAL_256:
            return None
        return (pa.decimal128 if digits <= LONGEST_DECIMAL else pa.decimal256)(digits, 0)
    if pa.types.is_timestamp(type_) and type_.unit == "s":
        return pa.timestamp("ms", type_.tz)
    coarse = {pa.date64(): pa.timestamp("ms"), pa.time32("s"): pa.time32("ms")}
    return coarse.get(type_, type_)


def _storable_nested(type_: pa.DataType, format_: str) -> pa.DataType | None:
    import pyarrow as pa

    types = pa.types
    if types.is_map(type_):
        return _storable_map(type_, format_)
    fields = list(type_) if types.is_struct(type_) else [type_.value_field]
    inner = [storable(_plain_strings(field.type), format_) for field in fields]
    kept = [f.with_type(t) for f, t in zip(fields, inner, strict=True) if t is not None]
    if not kept or len(kept) < len(fields):
        return None
    if types.is_struct(type_):
        made = pa.struct(kept)
    elif types.is_fixed_size_list(type_):
        made = pa.list_(kept[0], type_.list_size)
    elif types.is_large_list(type_) or types.is_large_list_view(type_):
        made = pa.large_list(kept[0])
    else:
        made = pa.list_(kept[0])
    return type_ if made == type_ else made


def _storable_map(type_: pa.DataType, format_: str) -> pa.DataType | None:
    import pyarrow as pa

    key, item = (
        storable(_plain_strings(inner), format_) for inner in (type_.key_type, type_.item_type)
    )
    if key is None or item is None:
        return None
    made = pa.map_(key, item, type_.keys_sorted)
    return type_ if made == type_ else made


def _plain_strings(type_: pa.DataType) -> pa.DataType:
    """Views inside of others cannot be sliced by the writer."""
    import pyarrow as pa

    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(type_, type_)


Kinds = list["pa.DataType"]
Holds = Callable[["pa.DataType"], bool]


def _widenings() -> list[tuple[Holds, Callable[[Kinds], pa.DataType | None]]]:
    """(whether a type belongs, the widest of such) in the order in which they are tried."""
    import pyarrow as pa

    t = pa.types
    return [
        (
            lambda k: t.is_string(k) or t.is_large_string(k) or t.is_string_view(k),
            lambda _: pa.large_string(),
        ),
        (
            lambda k: (
                t.is_binary(k)
                or t.is_large_binary(k)
                or t.is_fixed_size_binary(k)
                or t.is_binary_view(k)
            ),
            lambda _: pa.large_binary(),
        ),
        (t.is_integer, _widest_integer),
        (lambda k: t.is_integer(k) or t.is_decimal(k), _widest_decimal),
        (t.is_floating, lambda kinds: max(kinds, key=lambda k: k.bit_width)),
        (
            lambda k: t.is_floating(k) or (t.is_integer(k) and k.bit_width <= 32),
            lambda _: pa.float64(),
        ),
        (lambda k: t.is_list(k) or t.is_large_list(k), _widest_list),
        (t.is_struct, _widest_struct),
        (t.is_map, _widest_map),
    ]


def _distinct(types: Sequence[pa.DataType]) -> Kinds:
    found: Kinds = []
    for type_ in types:
        if type_ not in found:
            found.append(type_)
    return found


def _without_encoding(type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return type_.value_type
    return type_


def _widest_integer(kinds: Kinds) -> pa.DataType:
    import pyarrow as pa

    signed = [k.bit_width for k in kinds if pa.types.is_signed_integer(k)]
    unsigned = [k.bit_width for k in kinds if pa.types.is_unsigned_integer(k)]
    if not signed:
        return max(kinds, key=lambda k: k.bit_width)
    # A signed type holds the unsigned ones of half its width.
    width = max([*signed, *(2 * bits for bits in unsigned)])
    by_width = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
    return by_width.get(width, pa.decimal128(20, 0))


def _widest_decimal(kinds: Kinds) -> pa.DataType | None:
    import pyarrow as pa

    sizes = [
        (k.precision - k.scale, k.scale) if pa.types.is_decimal(k) else (_digits(k), 0)
        for k in kinds
    ]
    whole, scale = max(w for w, _ in sizes), max(s for _, s in sizes)
    if scale < 0 or whole + scale > LONGEST_DECIMAL:
        return None
    return pa.decimal128(whole + scale, scale)


def _digits(type_: pa.DataType) -> int:
    return {8: 3, 16: 5, 32: 10, 64: 20}[type_.bit_width]


def _widest_list(kinds: Kinds) -> pa.DataType | None:
    import pyarrow as pa

    inner = widest([k.value_type for k in kinds])
    if inner is None:
        return None
    is_large = any(pa.types.is_large_list(k) for k in kinds)
    return pa.large_list(inner) if is_large else pa.list_(inner)


def _widest_struct(kinds: Kinds) -> pa.DataType | None:
    import pyarrow as pa

    names = dict.fromkeys(field.name for kind in kinds for field in kind)
    if any(len({f.name for f in kind}) < kind.num_fields for kind in kinds):
        return None
    fields = []
    for name in sorted(names):
        inner = widest([k.field(name).type for k in kinds if k.get_field_index(name) >= 0])
        if inner is None:
            return None
        fields.append(pa.field(name, inner))
    by_name = {field.name: field for field in fields}
    return pa.struct([by_name[name] for name in names])


def _widest_map(kinds: Kinds) -> pa.DataType | None:
    import pyarrow as pa

    key, item = widest([k.key_type for k in kinds]), widest([k.item_type for k in kinds])
    return None if key is None or item is None else pa.map_(key, item)
