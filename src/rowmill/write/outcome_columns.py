"""Outcome lines -> Arrow columns: what stands behind the carried columns of a table.

Promises: one schema for both fates, each field of `Outcome` one column; log-probabilities are JSON texts as they came.
Knows nothing of: files, order.
Memory: one batch.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rowmill.rows import Choice, Chunk, Outcome, ToolCall
from rowmill.write.answer_form import OWN_FIELDS, AnswerForm
from rowmill.write.answers import FOREIGN, PARSED_COLUMN, columns_of_schema, parsed_array
from rowmill.write.kinds import JSON_MARK
from rowmill.write.results import ROW_COLUMN
from rowmill.write.vectors import vector_array, vector_type

if TYPE_CHECKING:
    import pyarrow as pa

UNREADABLE = "unreadable"
"""Kind of failure of a row that has no columns."""
_NULL = msgspec.Raw(b"null")


class OutcomeColumns:
    """Makes the columns for one output prefix."""

    def __init__(
        self,
        prefix: str,
        answers: str = "",
        *,
        own: AnswerForm | None = None,
        dimensions: int = 0,
    ) -> None:
        """Columns named with `prefix`.

        Args:
            answers: JSON Schema of the job's answers; empty for none.
            own: how answers that are no text are written; None where the job makes none.
            dimensions: numbers in each.
        """
        import pyarrow as pa

        schema = msgspec.json.decode(answers) if answers else None
        self._parsed = columns_of_schema(schema, prefix).field(0)

        hints = typing.get_type_hints(Outcome)
        del hints["key"]
        self._fields = _own_fields(prefix, own, dimensions) if own else {}
        hints = {name: hint for name, hint in hints.items() if name not in OWN_FIELDS}
        self._types = {name: _arrow_type(hint) for name, hint in hints.items()}
        self._decode = msgspec.json.Decoder(_as_raw(Outcome, hints)).decode
        fields = [pa.field(prefix + ROW_COLUMN, pa.string(), nullable=False)]
        for name, type_ in self._types.items():
            mark = JSON_MARK if type_ is None else None
            field = pa.field(prefix + name, type_ or pa.string(), metadata=mark)
            fields.append(self._parsed if name == PARSED_COLUMN else field)
        self.schema = pa.schema([*fields, *self._fields.values()])

    def columns(
        self, places: Sequence[str], lines: Sequence[bytes]
    ) -> tuple[list[pa.Array], list[int]]:
        """Columns of neighbouring rows, in the order of the schema, and which rows are unreadable.

        Args:
            places: `FILE:LINE` of each.
            lines: of their outcomes.
        """
        import pyarrow as pa

        outcomes = [self._decode(line) for line in lines]
        arrays = [pa.array(places, pa.string())]
        for name, type_ in self._types.items():
            values = [getattr(outcome, name) for outcome in outcomes]
            if name == PARSED_COLUMN:
                arrays.append(_parsed_array(values, self._parsed))
            else:
                arrays.append(_json_array(values) if type_ is None else _array(values, type_))
        for name, field in self._fields.items():
            arrays.append(_own_column(name, field.type, outcomes))
        kinds = enumerate(outcome.error_kind for outcome in outcomes)
        return arrays, [at for at, kind in kinds if kind == UNREADABLE]


def _as_raw(struct: type[msgspec.Struct], hints: dict[str, Any]) -> type[msgspec.Struct]:
    """The struct with fields that become JSON text left raw, unknown ones passed over."""
    fields = [
        (field.name, _raw_type(hints[field.name]), _default(field))
        for field in msgspec.structs.fields(struct)
        if field.name in hints
    ]
    if struct is Outcome:
        fields += [
            ("embedding", bytes | None, None),
            ("chunks", list[Chunk], []),
            ("cut_from", int | None, None),
            ("label", str | None, None),
            ("probability", float | None, None),
            ("probabilities", dict[str, float] | None, None),
            ("score", float | None, None),
            ("scores", list[float] | None, None),
            ("ranking", list[int] | None, None),
        ]
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return msgspec.defstruct(f"Raw{struct.__name__}", fields, rename=names, kw_only=True)


def _raw_type(hint: Any) -> Any:
    if _element(hint) is Choice:
        return list[_as_raw(Choice, typing.get_type_hints(Choice))]
    return msgspec.Raw if _arrow_type(hint) is None else hint


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if _arrow_type(field.type) is None:
        return _NULL
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if type(None) in typing.get_args(field.type) else _zero(field.type)


def _zero(hint: Any) -> Any:
    return hint() if hint in (int, float, str) else "ok"


def _own_fields(prefix: str, form: AnswerForm, dimensions: int) -> dict[str, pa.Field]:
    """The columns that only jobs of some kinds have."""
    import pyarrow as pa

    vector = vector_type(form, dimensions)
    chunk = pa.struct([("start", pa.int64()), ("stop", pa.int64()), ("embedding", vector)])
    types = {
        "embedding": vector,
        "chunks": pa.list_(chunk),
        "cut_from": pa.int64(),
        "label": pa.string(),
        "probability": pa.float64(),
        "probabilities": pa.map_(pa.string(), pa.float64()),
        "score": pa.float64(),
        "scores": pa.list_(pa.float64()),
        "ranking": pa.list_(pa.int32()),
    }
    return {name: pa.field(prefix + name, types[name]) for name in form.fields}


def _own_column(name: str, type_: pa.DataType, outcomes: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    if name == "probabilities":
        found = [outcome.probabilities for outcome in outcomes]
        return pa.array([None if one is None else list(one.items()) for one in found], type_)
    if name == "embedding":
        return vector_array([outcome.embedding for outcome in outcomes], type_)
    if name != "chunks":
        return pa.array([getattr(outcome, name) for outcome in outcomes], type_)
    chunks = [chunk for outcome in outcomes for chunk in outcome.chunks]
    fields = list(type_.value_type)
    entries = pa.StructArray.from_arrays(
        [
            pa.array([chunk.start for chunk in chunks], pa.int64()),
            pa.array([chunk.stop for chunk in chunks], pa.int64()),
            vector_array([chunk.embedding for chunk in chunks], fields[2].type),
        ],
        fields=fields,
    )
    stops = np.cumsum([0, *(len(outcome.chunks) for outcome in outcomes)])
    return pa.ListArray.from_arrays(pa.array(stops, pa.int32()), entries)


def _arrow_type(hint: Any) -> pa.DataType | None:
    """The Arrow type of a field; None where it is kept as JSON text."""
    import pyarrow as pa

    plain = _without_none(hint)
    if typing.get_origin(plain) is typing.Literal:
        return pa.string()
    scalars = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    if plain in scalars:
        return scalars[plain]
    inner = _element(plain)
    if inner in (Choice, ToolCall):
        return pa.list_(pa.struct(_fields_of(inner)))
    if inner in (int, float, str):
        return pa.list_(scalars[inner])
    return None


def _fields_of(struct: type[msgspec.Struct]) -> list[pa.Field]:
    import pyarrow as pa

    fields = []
    for name, hint in typing.get_type_hints(struct).items():
        type_ = _arrow_type(hint)
        mark = JSON_MARK if type_ is None else None
        fields.append(pa.field(name, type_ or pa.string(), metadata=mark))
    return fields


def _element(hint: Any) -> Any:
    """Of a list type, the type of its elements."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is list else None


def _without_none(hint: Any) -> Any:
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        kept = [one for one in typing.get_args(hint) if one is not type(None)]
        return kept[0] if len(kept) == 1 else hint
    return hint


def _parsed_array(values: list[msgspec.Raw], field: pa.Field) -> pa.Array:
    """Parsed answers. One that a row's own schema allowed, not the job's, has no place here: its text is there."""
    texts = [bytes(value) for value in values]
    try:
        return parsed_array(texts, field)
    except FOREIGN:
        pass
    for at, text in enumerate(texts):
        try:
            parsed_array([text], field)
        except FOREIGN:
            texts[at] = b"null"
    return parsed_array(texts, field)


def _json_array(values: list[msgspec.Raw]) -> pa.Array:
    import pyarrow as pa

    return pa.array([_json_text(value) for value in values], pa.string())


def _json_text(value: msgspec.Raw) -> str | None:
    text = bytes(value)
    return None if text == b"null" else text.decode()


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_list(type_) and pa.types.is_struct(type_.value_type):
        values = [None if v is None else [_struct(one) for one in v] for v in values]
    return pa.array(values, type_)


def _struct(one: msgspec.Struct) -> dict[str, Any]:
    return {name: _value(value) for name, value in msgspec.structs.asdict(one).items()}


def _value(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return _json_text(value)
    if isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
        return [_struct(one) for one in value]
    return value
