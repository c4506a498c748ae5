"""Arrow array -> values that JSON can hold: by the table "Types of tables" in docs/rules.md.

Promises: every type that `unreadable_type` lets pass gives one value a row; nothing is rounded or cut.
Knows nothing of: rows, files.
Memory: a Python value for each value of the array.
"""

from __future__ import annotations

import uuid
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from rowmill.shown import moments

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DEPTH = 100
"""Of nested types: JSON readers give up beyond, and so does the stack."""

Values = list[Any]
Way = Callable[[Any], Values]


def values(array: pa.Array[Any]) -> Values:
    """Each value as None, bool, int, float, str, list or dict.

    Raises: UnicodeDecodeError where a text is no UTF-8.
    """
    return _ways()[array.type.id](array)


def unreadable_type(kind: pa.DataType, depth: int = 0) -> str:
    """Why values of a type cannot be read, as the end of a sentence; empty where they can."""
    if depth > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if kind.id not in _ways():
        return f"of type `{kind}`, which this version does not read"
    return next(
        filter(None, (unreadable_type(inner, depth + 1) for inner in inner_types(kind))), ""
    )


def inner_types(kind: pa.DataType) -> list[pa.DataType]:
    """The types that a type is made of; none where it stands alone."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    if pa.types.is_dictionary(kind):
        return [kind.value_type]
    if pa.types.is_run_end_encoded(kind):
        return [kind.value_type]
    return [kind.field(at).type for at in range(kind.num_fields)]


@cache
def _ways() -> dict[int, Way]:
    """How values of a type are made, by the type's id. Older pyarrow lacks some types."""
    import pyarrow as pa

    by_name: dict[str, Way] = {
        **dict.fromkeys(("NA", "BOOL", "STRING", "LARGE_STRING", "STRING_VIEW"), _as_they_are),
        **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), _as_they_are),
        **dict.fromkeys(("UINT8", "UINT16", "UINT32", "UINT64"), _as_they_are),
        "DOUBLE": _doubles,
        "FLOAT": _floats,
        "HALF_FLOAT": _halves,
        **dict.fromkeys(("DECIMAL32", "DECIMAL64", "DECIMAL128", "DECIMAL256"), _decimals),
        **dict.fromkeys(("BINARY", "LARGE_BINARY", "BINARY_VIEW"), _binaries),
        "FIXED_SIZE_BINARY": _binaries,
        "DATE32": _dates,
        "DATE64": _dates,
        "TIME32": _times,
        "TIME64": _times,
        "TIMESTAMP": _timestamps,
        "DURATION": _durations,
        "INTERVAL_MONTH_DAY_NANO": _intervals,
        **dict.fromkeys(("LIST", "LARGE_LIST", "FIXED_SIZE_LIST"), _lists),
        **dict.fromkeys(("LIST_VIEW", "LARGE_LIST_VIEW"), _lists),
        "STRUCT": _structs,
        "MAP": _maps,
        "DICTIONARY": _dictionaries,
        "RUN_END_ENCODED": _runs,
        **dict.fromkeys(("SPARSE_UNION", "DENSE_UNION"), _unions),
    }
    ids = {name: getattr(pa.lib, f"Type_{name}", None) for name in by_name}
    ways = {ids[name]: way for name, way in by_name.items() if ids[name] is not None}
    return ways | {pa.uuid().id: _extensions}


def _as_they_are(array: Any) -> Values:
    found: Values = array.to_pylist()
    return found


def _doubles(array: Any) -> Values:
    import pyarrow.compute as pc

    found: Values = array.to_pylist()
    if pc.all(pc.is_finite(array), min_count=0).as_py():
        return found
    return [_spelt(value) for value in found]


def _spelt(value: float | None) -> float | str | None:
    """JSON has no word for these three; as texts they are still there."""
    if value is None or abs(value) < float("inf"):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _floats(array: Any) -> Values:
    """By way of their own shortest text: 0.1 as a double would be 0.10000000149011612."""
    import pyarrow as pa

    return _doubles(array.cast(pa.string()).cast(pa.float64()))


def _halves(array: Any) -> Values:
    halves = array.to_pylist()
    return [None if half is None else _spelt(float(str(np.float16(half)))) for half in halves]


def _decimals(array: Any) -> Values:
    return [None if value is None else format(value, "f") for value in array.to_pylist()]


def _binaries(array: Any) -> Values:
    return [
        None if value is None else b2a_base64(value, newline=False).decode()
        for value in array.to_pylist()
    ]


def _counts(array: Any) -> moments.Counts:
    """The integers that times are stored as; 0 for null."""
    import pyarrow as pa

    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    counts: moments.Counts = (
        array.view(width).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    )
    return counts


def _with_nulls(array: Any, found: Sequence[Any]) -> Values:
    if not array.null_count:
        return list(found)
    is_there = array.is_valid().to_pylist()
    return [value if there else None for value, there in zip(found, is_there, strict=True)]


def _dates(array: Any) -> Values:
    counts = _counts(array)
    days = counts if array.type.bit_width == 32 else counts // 86_400_000
    return _with_nulls(array, moments.date_texts(days))


def _times(array: Any) -> Values:
    return _with_nulls(array, moments.time_texts(_counts(array), array.type.unit))


def _timestamps(array: Any) -> Values:
    texts = moments.timestamp_texts(_counts(array), array.type.unit)
    if array.type.tz is not None:
        texts = [f"{text}Z" for text in texts]
    return _with_nulls(array, texts)


def _durations(array: Any) -> Values:
    return _with_nulls(array, moments.duration_texts(_counts(array), array.type.unit))


def _intervals(array: Any) -> Values:
    return [
        None if value is None else moments.interval_text(*value) for value in array.to_pylist()
    ]


def _lists(array: Any) -> Values:
    import pyarrow.compute as pc

    lengths = pc.list_value_length(array).to_pylist()
    items = values(array.flatten())  # what lies under a null list is not among them
    stops = list(accumulate(length or 0 for length in lengths))
    return [
        None if length is None else items[stop - length : stop]
        for length, stop in zip(lengths, stops, strict=True)
    ]


def _structs(array: Any) -> Values:
    names = [array.type.field(at).name for at in range(array.type.num_fields)]
    # Flattened, a field is null where its struct is.
    columns = [values(column) for column in array.flatten()]
    rows = zip(*columns, strict=True) if columns else repeat((), len(array))
    if len(set(names)) == len(names):
        return _with_nulls(array, [dict(zip(names, row, strict=True)) for row in rows])
    return _with_nulls(
        array, [[list(pair) for pair in zip(names, row, strict=True)] for row in rows]
    )


def _maps(array: Any) -> Values:
    import pyarrow as pa

    kind = array.type
    entries = reread(array, pa.list_(pa.struct([kind.key_field, kind.item_field])))
    pairs = [
        None if row is None else [list(e.values()) for e in row] for row in _lists(entries)
    ]
    if not is_text(kind.key_type):
        return pairs
    return [None if row is None else _object(row) for row in pairs]


def _object(pairs: list[list[Any]]) -> dict[str, Any] | list[list[Any]]:
    """An object, but where a key stands twice: no reader would see both."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else pairs


def is_text(kind: Any) -> bool:
    """Whether a type, or that of a dictionary's values, is one of the strings."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in tests)


def _dictionaries(array: Any) -> Values:
    """A dictionary may be far larger than the rows, and hold what no row has."""
    indices = array.indices.to_pylist()
    if len(array.dictionary) < len(array):
        found = values(array.dictionary)
        return [None if index is None else found[index] for index in indices]
    used = {index: array.dictionary.slice(index, 1) for index in set(indices) - {None}}
    value_by_index = {index: values(entry)[0] for index, entry in used.items()}
    return [None if index is None else value_by_index[index] for index in indices]


def _runs(array: Any) -> Values:
    first, length = array.find_physical_offset(), array.find_physical_length()
    found = values(array.values.slice(first, length))
    ends = array.run_ends.slice(first, length).to_pylist()
    stops = [min(end - array.offset, len(array)) for end in ends]
    lengths = [stop - start for start, stop in zip([0, *stops], stops, strict=False)]
    return list(chain.from_iterable(map(repeat, found, lengths)))


def _unions(array: Any) -> Values:
    """By the buffers: `type_codes` and `offsets` take no notice of a slice (pyarrow 26)."""
    window = slice(array.offset, array.offset + len(array))
    _, codes, *more = array.buffers()
    types = np.frombuffer(codes, np.int8)[window].tolist()
    if array.type.mode == "sparse":
        places: Sequence[int] = range(len(array))
    else:
        places = np.frombuffer(more[0], np.int32)[window].tolist()
    children = {code: array.field(at) for at, code in enumerate(array.type.type_codes)}
    return [
        values(children[code].slice(place, 1))[0]
        for code, place in zip(types, places, strict=True)
    ]


def _extensions(array: Any) -> Values:
    found = values(array.storage)
    if getattr(array.type, "extension_name", "") != "arrow.uuid":
        return found
    raw = array.storage.to_pylist()
    return [None if value is None else str(uuid.UUID(bytes=value)) for value in raw]


def shown_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the rows; of a dictionary, of its texts as often as rows have them, not of the rest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    total = 0
    column: Any
    for column in batch.columns:
        if not pa.types.is_dictionary(column.type):
            total += column.nbytes
            continue
        total += column.indices.nbytes
        if _has_length(column.type.value_type):
            lengths: Any = pc.binary_length(column.dictionary).cast(pa.int64())
            total += pc.sum(lengths.take(column.indices)).as_py() or 0
    return total


def _has_length(kind: Any) -> bool:
    import pyarrow as pa

    tests = ("is_string", "is_large_string", "is_binary", "is_large_binary")
    return any(getattr(pa.types, test)(kind) for test in tests)


class _Reread:
    """The memory of an array under another type."""

    def __init__(self, array: Any, kind: Any) -> None:
        self._array, self._kind = array, kind

    def __arrow_c_array__(self, requested: object = None) -> tuple[object, object]:
        del requested  # it is asked for as it is
        return self._kind.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def reread(array: Any, kind: Any) -> Any:
    """An array as one of a type that is laid out alike, nothing copied.

    `Array.view` gives nulls inside of other types a length of 0, and what reads them then aborts (pyarrow 26).
    """
    import pyarrow as pa

    memory: Any = _Reread(array, kind)
    return pa.array(memory)


def apart(array: pa.Array[Any]) -> tuple[Values, list[int]]:
    """Values, None for those that hold a text that is no UTF-8, and where these are."""
    try:
        return values(array), []
    except UnicodeDecodeError:
        if len(array) == 1:
            return [None], [0]
    half = len(array) // 2
    left, bad_left = apart(array.slice(0, half))
    right, bad_right = apart(array.slice(half))
    return left + right, bad_left + [half + at for at in bad_right]
