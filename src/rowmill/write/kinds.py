"""JSON values of a column, a window at a time -> what is known of them, and at last one Arrow type.

Promises: `merged` is associative and commutative, so shards may be looked at apart and in any order;
a type is chosen only where each value is held by it exactly, else the column is JSON text;
no value is changed.
Knows nothing of: files, lines.
Memory: one window, and a record a column and a place in its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

JSON_MARK = {b"rowmill.json": b"1"}
"""Metadata of a field whose strings are JSON texts."""
TEXT, BOOL, INT, FLOAT, STRING, LIST, OBJECT = (1 << i for i in range(7))
NULL_TEXT = b"null"
MOST_FIELDS = 1000
"""Keys of an object that may become fields of a struct."""
MOST_LEVELS = 12
LARGEST_EXACT = 1 << 53
"""Whole numbers up to this are their own float."""

_BITS: dict[type, int] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: STRING,
    list: LIST,
    dict: OBJECT,
    type(None): 0,
}


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of the values at one place: a column, the elements of a list, a field."""

    bits: int = 0
    """Kinds of values, nulls aside; TEXT: they fit no type, whatever else comes."""
    low: int = 0
    high: int = 0
    """Range of whole numbers, 0 within it."""
    element: Seen | None = None
    """Of the lists' elements."""
    fields: dict[str, Seen] | None = None
    """Of the objects' fields."""
    order: tuple[int, tuple[str, ...]] | None = None
    """Rank of the window in which the first object was seen, and the order of its keys."""

    @property
    def is_text(self) -> bool:
        """Whether the values fit no type."""
        return bool(self.bits & TEXT)


NOTHING = Seen()
MIXED = Seen(bits=TEXT)


def see(raws: Sequence[bytes | msgspec.Raw], rank: int) -> Seen:
    """Look at the JSON texts of a column.

    Args:
        rank: of the window: the order of keys is taken from the lowest.
    """
    listed = b"[%b]" % b",".join(raws)
    try:
        values = msgspec.json.decode(listed)
    except (msgspec.MsgspecError, RecursionError):
        # Half a surrogate pair, a number that no float holds: the text alone is exact.
        return MIXED
    seen = _see(values, rank, MOST_LEVELS)
    if has_floats(seen) and not _floats_are_exact(listed):
        return MIXED
    return seen


def merged(one: Seen, other: Seen) -> Seen:
    """What is known of both together."""
    bits = one.bits | other.bits
    if bits & TEXT or not _is_one_kind(bits):
        return MIXED
    element = _merged_or_none(one.element, other.element)
    fields = _merged_fields(one.fields, other.fields)
    if fields is not None and any(seen.is_text for seen in fields.values()):
        return MIXED
    if element is not None and element.is_text:
        return MIXED
    orders = [seen.order for seen in (one, other) if seen.order is not None]
    found = Seen(
        bits,
        min(one.low, other.low),
        max(one.high, other.high),
        element,
        fields,
        min(orders, default=None),
    )
    return MIXED if _is_out_of_range(found) else found


def arrow_type(seen: Seen) -> pa.DataType:
    """The type that holds every value; a place of nulls alone is a string's."""
    import pyarrow as pa

    bits = seen.bits
    if bits & FLOAT:
        return pa.float64()
    if bits & INT:
        return pa.uint64() if seen.high >= 1 << 63 else pa.int64()
    if bits & BOOL:
        return pa.bool_()
    if bits & LIST:
        return pa.list_(arrow_type(seen.element or NOTHING))
    if bits & OBJECT:
        assert seen.order is not None
        fields = seen.fields or {}
        return pa.struct([pa.field(name, arrow_type(fields[name])) for name in seen.order[1]])
    return pa.string()


def arrow_field(name: str, seen: Seen) -> pa.Field:
    """A column's field, marked where it holds JSON texts."""
    import pyarrow as pa

    return pa.field(name, arrow_type(seen), metadata=JSON_MARK if seen.is_text else None)


def is_marked(field: pa.Field) -> bool:
    """Whether a field's strings are JSON texts."""
    return (field.metadata or {}).get(b"rowmill.json") == b"1"


def has_floats(seen: Seen) -> bool:
    """Whether a number that is not whole, or not written so, is anywhere in the values."""
    inner = [*(seen.fields or {}).values(), *([seen.element] if seen.element else [])]
    return bool(seen.bits & FLOAT) or any(map(has_floats, inner))


def _see(values: Sequence[Any], rank: int, levels: int) -> Seen:
    kinds = set(map(type, values))
    bits = sum({_BITS[kind] for kind in kinds})
    if not _is_one_kind(bits):
        return MIXED
    if bits & (LIST | OBJECT) and not levels:
        return MIXED
    if bits & LIST:
        return _see_lists(values, rank, levels)
    if bits & OBJECT:
        return _see_objects(values, rank, levels)
    if not bits & INT:
        return Seen(bits)
    numbers = values if kinds == {int} else [v for v in values if type(v) is int]
    found = Seen(bits, min(0, min(numbers)), max(0, max(numbers)))
    return MIXED if _is_out_of_range(found) else found


def _see_lists(values: Sequence[Any], rank: int, levels: int) -> Seen:
    element = _see(list(chain.from_iterable(v for v in values if v)), rank, levels - 1)
    return MIXED if element.is_text else Seen(LIST, element=element)


def _see_objects(values: Sequence[Any], rank: int, levels: int) -> Seen:
    objects = [v for v in values if v is not None]
    first = objects[0]
    names = first.keys()
    # An object without keys would be a struct without fields, which files cannot hold.
    if not 0 < len(names) <= MOST_FIELDS or any(o.keys() != names for o in objects):
        return MIXED
    fields = {name: _see([o[name] for o in objects], rank, levels - 1) for name in names}
    if any(seen.is_text for seen in fields.values()):
        return MIXED
    return Seen(OBJECT, fields=fields, order=(rank, tuple(names)))


def _is_one_kind(bits: int) -> bool:
    return not bits or bits in (BOOL, INT, FLOAT, INT | FLOAT, STRING, LIST, OBJECT)


def _is_out_of_range(seen: Seen) -> bool:
    low, high = seen.low, seen.high
    if seen.bits & FLOAT:
        return low < -LARGEST_EXACT or high > LARGEST_EXACT
    return low < -(1 << 63) or high >= 1 << 64 or (low < 0 and high >= 1 << 63)


def _merged_or_none(one: Seen | None, other: Seen | None) -> Seen | None:
    if one is None or other is None:
        return one or other
    return merged(one, other)


def _merged_fields(
    one: dict[str, Seen] | None, other: dict[str, Seen] | None
) -> dict[str, Seen] | None:
    if one is None or other is None:
        return one if other is None else other
    if one.keys() != other.keys():
        return {"": MIXED}
    return {name: merged(seen, other[name]) for name, seen in one.items()}


def _floats_are_exact(listed: bytes) -> bool:
    """Whether each number is the one that its float is printed as."""
    literals: list[str] = []
    msgspec.json.Decoder(float_hook=literals.append).decode(listed)
    return all(_is_exact(literal) for literal in literals)


def _is_exact(literal: str) -> bool:
    text = repr(float(literal))
    try:
        return text == literal or Decimal(text) == Decimal(literal)
    except ArithmeticError:
        return False


class SeenColumns(msgspec.Struct):
    """What is known of all columns of some lines."""

    seen: dict[str, Seen] = {}
    places: dict[str, tuple[int, int]] = {}
    """Rank of the window in which a column came first, and its place among those of that window."""

    def add(self, columns: dict[str, list[bytes | msgspec.Raw]], rank: int) -> None:
        """Look at the columns of one window."""
        for at, (name, raws) in enumerate(columns.items()):
            before = self.seen.get(name, NOTHING)
            self.seen[name] = before if before.is_text else merged(before, see(raws, rank))
            self.places[name] = min(self.places.get(name, (rank, at)), (rank, at))

    def merge(self, other: SeenColumns) -> None:
        """Take in what is known of other lines."""
        for name, seen in other.seen.items():
            self.seen[name] = merged(self.seen.get(name, NOTHING), seen)
            place = other.places[name]
            self.places[name] = min(self.places.get(name, place), place)

    def fields(self, *, as_text: bool = False) -> Iterator[pa.Field]:
        """One field a column, in the order in which columns came.

        Args:
            as_text: have JSON texts in all columns but those of strings.
        """
        for name in sorted(self.seen, key=lambda n: self.places[n]):
            seen = self.seen[name]
            yield arrow_field(name, MIXED if as_text and seen.bits & ~STRING else seen)
