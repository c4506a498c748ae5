"""Vectors as outcomes hold them -> JSON texts for lines, fixed-size lists for tables.

Promises: a number reads back as the float32, or float16, that it is: texts are the shortest that do;
a row without a vector has null in its place.
Knows nothing of: outcomes' other fields, files.
Memory: the vectors of one call, three times as text.
Source: measured, 384 numbers a vector: as the shortest text by Arrow 50 us, 4.7 kB; as doubles by msgspec 25 us, 8 kB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rowmill.write.answer_form import AnswerForm, Bits

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE_BYTES = 4 * 2**20
Numbers = npt.NDArray[np.float32]


def vector_texts(vectors: Sequence[bytes], bits: Bits) -> list[bytes]:
    """Each vector as a JSON list."""
    longest = max(map(len, vectors), default=0)
    rows = max(1, AT_ONCE_BYTES // max(longest, 1))
    texts: list[bytes] = []
    for at in range(0, len(vectors), rows):
        texts += _texts(vectors[at : at + rows], bits)
    return texts


def _texts(vectors: Sequence[bytes], bits: Bits) -> list[bytes]:
    import pyarrow as pa
    import pyarrow.compute as pc

    stops = np.cumsum([0, *(len(vector) // 4 for vector in vectors)])
    numbers = pc.cast(pa.array(_numbers(vectors, bits)), pa.string())
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(stops, pa.int32()), numbers), ",")
    return [b"[%b]" % text.encode() for text in joined.to_pylist()]


def vector_type(form: AnswerForm, dimensions: int) -> pa.DataType:
    """Of a column of vectors; without a length where no row has one to tell it."""
    import pyarrow as pa

    number = pa.float16() if form.bits == 16 else pa.float32()
    return pa.list_(number, dimensions or -1)


def vector_array(vectors: Sequence[bytes | None], type_: pa.DataType) -> pa.Array:
    """A column of vectors."""
    import pyarrow as pa

    is_fixed = pa.types.is_fixed_size_list(type_)
    empty = bytes(4 * type_.list_size) if is_fixed else b""
    is_null = np.array([vector is None for vector in vectors], np.bool_)
    bits: Bits = 16 if pa.types.is_float16(type_.value_type) else 32
    flat = _numbers([empty if vector is None else vector for vector in vectors], bits)
    numbers = pa.array(flat.astype(np.float16) if bits == 16 else flat)
    if not is_fixed:
        return pa.nulls(len(vectors), type_)
    mask = pa.array(is_null) if is_null.any() else None
    return pa.FixedSizeListArray.from_arrays(numbers, type=type_, mask=mask)


def _numbers(vectors: Sequence[bytes], bits: Bits) -> Numbers:
    flat = np.frombuffer(b"".join(vectors), "<f4")
    return flat.astype(np.float16).astype(np.float32) if bits == 16 else flat
