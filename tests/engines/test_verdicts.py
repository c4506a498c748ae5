"""Numbers become labels, scores and rankings; what is none fails its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowmill.config import Job
from rowmill.engines.judging import judge_of
from rowmill.engines.vectors import answered_with
from rowmill.rows import Limits, Outcome, Pair

HEAD = Limits(labels=("up", "down"), activation="softmax")


def packed(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


def judged(kind: str, fields: dict[str, Any], limits: Limits = HEAD, **job: Any) -> Outcome:
    engine = Job.model_validate({"kind": kind, **job}).engine
    (outcome,) = judge_of(engine, limits).judged([Outcome(1, "ok", **fields)])
    return outcome


def pairs(*numbers: float) -> dict[str, Any]:
    return answered_with([packed(one) for one in numbers], pairs=[Pair(1, 1)])


def test_labels_of_a_job_get_softmax_of_their_weights() -> None:
    found = judged(
        "classify", {"embedding": packed(-1, -3, -2)}, classify={"labels": ("a", "b", "c")}
    )

    shares = np.exp([-1, -3, -2]) / np.exp([-1, -3, -2]).sum()
    assert found.label == "a"
    assert found.probability == pytest.approx(shares[0])
    assert found.probabilities == pytest.approx(dict(zip("abc", shares, strict=True)))
    assert not isinstance(found.embedding, bytes)


def test_a_head_with_one_number_for_two_classes_means_the_second() -> None:
    found = judged("classify", {"embedding": packed(2.0)})

    assert found.probabilities == pytest.approx(
        {"up": 1 / (1 + np.exp(2)), "down": 1 / (1 + np.exp(-2))}
    )


@pytest.mark.parametrize(
    ("activation", "wanted"), [("none", [3.0, -1.0]), ("auto", [0.952574, 0.268941])]
)
def test_scores_are_activated_as_asked(activation: str, wanted: list[float]) -> None:
    found = judged("rerank", pairs(3, -1), Limits(), score={"activation": activation})

    assert found.scores == pytest.approx(wanted, abs=1e-6)
    assert found.ranking == [0, 1]


def test_equal_scores_keep_the_order_of_the_row_and_top_n_cuts() -> None:
    found = judged("rerank", pairs(1, 5, 1, 5, 0), Limits(), score={"top_n": 3})

    assert found.ranking == [1, 3, 0]
    assert len(found.scores or []) == 5


def test_a_pair_has_a_score() -> None:
    assert judged("score", pairs(0.0), Limits()).score == 0.5


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("score", pairs(float("nan")), "not finite"),
        ("rerank", {}, "0 numbers"),
        ("classify", {"embedding": packed(1, 2, 3)}, "3 numbers, expected one for each of 2"),
        ("classify", {"embedding": packed(1, float("inf"))}, "1 of its 2 numbers"),
    ],
)
def test_numbers_that_are_no_verdict_fail_their_row(
    kind: str, fields: dict[str, Any], words: str
) -> None:
    found = judged(kind, fields)

    assert (found.status, found.error_kind) == ("error", "bad_score")
    assert words in (found.error or "")
