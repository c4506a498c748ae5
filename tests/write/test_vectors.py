"""Vectors as they are written: every number reads back as it was."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rowmill.write.answer_form import AnswerForm
from rowmill.write.vectors import vector_array, vector_texts, vector_type

NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = st.lists(st.lists(NUMBERS, min_size=3, max_size=3), max_size=5)


@given(VECTORS)
def test_text_reads_back_as_the_same_numbers(vectors: list[list[float]]) -> None:
    packed = [np.array(vector, "<f4").tobytes() for vector in vectors]

    read = [np.array(json.loads(text), "<f4") for text in vector_texts(packed, 32)]

    for vector, found in zip(vectors, read, strict=True):
        assert np.array_equal(np.array(vector, "<f4"), found)


def test_half_numbers_are_short() -> None:
    assert [b"[0.099975586,1]"] == vector_texts([np.array([0.1, 1], "<f4").tobytes()], 16)


def test_column_has_one_length_and_nulls() -> None:
    one = np.array([1, 0.5], "<f4").tobytes()
    for form in (AnswerForm(), AnswerForm(bits=16)):
        column = vector_array([one, None], vector_type(form, 2))

        assert [[1.0, 0.5], None] == column.to_pylist()
        assert 2 == column.type.list_size
    nothing = vector_array([None], vector_type(AnswerForm(), 0))
    assert [None] == nothing.to_pylist()
    assert pa.types.is_list(nothing.type)
