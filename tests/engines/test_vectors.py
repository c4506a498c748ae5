"""Vectors behind an engine: cut, brought to length, and bad ones told."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rowmill.engines.vectors import Vectors
from rowmill.errors import ConfigError
from rowmill.kinds_config import EmbedConfig
from rowmill.rows import Chunk, Limits, Outcome


def packed(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


def numbers(vector: object) -> list[float]:
    assert isinstance(vector, bytes)
    return np.frombuffer(vector, "<f4").tolist()  # type: ignore[no-any-return]


GOOD = packed(3.0, 4.0, 12.0)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (packed(1, math.nan, math.inf), "2 of the 3 numbers of its vector are not finite"),
        (packed(0, 0, 0), "all zeros, 3 of them"),
        (packed(1, 2), "2 numbers, all others have 3"),
        (b"", "0 numbers, all others have 3"),
    ],
)
def test_bad_vector_is_its_own_rows_error(bad: bytes, words: str) -> None:
    outcomes = [Outcome(1, "ok", embedding=bad), Outcome(2, "ok", embedding=GOOD)]

    one, other = Vectors(EmbedConfig(), Limits(dimensions=3)).judged(outcomes)

    assert ("error", "bad_vector", None) == (one.status, one.error_kind, one.embedding)
    assert words in (one.error or "")
    assert Outcome(2, "ok", embedding=GOOD) == other


def test_bad_chunk_fails_its_row() -> None:
    chunks = [Chunk(0, 2, GOOD), Chunk(2, 4, packed(0, 0, 0))]

    (row,) = Vectors(EmbedConfig(), Limits()).judged([Outcome(1, "ok", chunks=chunks)])

    assert ("error", []) == (row.status, row.chunks)


def test_cut_vectors_are_brought_to_length_again() -> None:
    vectors = Vectors(EmbedConfig(dimensions=2), Limits(dimensions=3))

    (row,) = vectors.judged([Outcome(1, "ok", embedding=GOOD)])

    assert 2 == vectors.dimensions
    assert numbers(row.embedding) == pytest.approx([0.6, 0.8])
    as_they_are = Vectors(EmbedConfig(dimensions=2, normalise=False), Limits())
    (row,) = as_they_are.judged([Outcome(1, "ok", embedding=GOOD)])
    assert numbers(row.embedding) == [3.0, 4.0]


def test_numbers_at_the_edge_of_their_range_are_brought_to_length() -> None:
    huge, tiny = packed(3e38, 3e38), packed(1e-40, 0)
    vectors = Vectors(EmbedConfig(normalise=True), Limits())

    found = vectors.judged([Outcome(1, "ok", embedding=huge), Outcome(2, "ok", embedding=tiny)])

    assert [pytest.approx([0.5**0.5] * 2), pytest.approx([1.0, 0.0])] == [
        numbers(row.embedding) for row in found
    ]


def test_more_numbers_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="is 4, the model's vectors have 3"):
        Vectors(EmbedConfig(dimensions=4), Limits(dimensions=3))
