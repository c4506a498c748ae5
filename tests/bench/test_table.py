"""Runs -> figures."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.bench.records import Measured, Resident, Run, Work
from rowmill.bench.table import lines_of, markdown, ratio

MACHINE = {"hardware": "a machine", "versions": "some versions"}


def run_of(name: str, number: int, seconds: float, *, invalid: str = "") -> Run:
    return Run(
        contender=name,
        round=number,
        seconds=seconds,
        rows=100,
        prompt_tokens=900,
        output_tokens=100,
        cached_tokens=90,
        invalid=invalid,
    )


def measured(*runs: Run, **fields: Any) -> Measured:
    told: dict[str, Any] = {
        "title": "short, model, equal settings",
        "workload": "short",
        "work": Work("in.jsonl", 100, 900, 100),
        "seeds": [1, 2, 3],
        "settings": {"max_num_seqs": 8},
        "residents": [],
        "runs": list(runs),
        **fields,
    }
    return Measured(**told)


RUNS = [
    *(run_of("generate", i, s) for i, s in ((1, 10.0), (2, 20.0), (3, 12.0))),
    *(run_of("five_line", i, s) for i, s in ((1, 5.0), (2, 8.0), (3, 6.0))),
    *(run_of("rowmill", i, s) for i, s in ((1, 4.0), (2, 10.0), (3, 3.0))),
]


def test_a_ratio_is_the_median_of_pairs_not_the_ratio_of_medians() -> None:
    lines = {line.contender: line for line in lines_of(measured(*RUNS))}

    ours = lines["rowmill"]
    assert (ours.median_s, ours.least_s, ours.most_s, ours.runs) == (4.0, 3.0, 10.0, 3)
    assert ours.beside_baseline == 2.5  # of 2.5, 2.0, 4.0; medians alone would say 3.0
    assert (ours.best_other, ours.beside_best) == ("five_line", 1.25)
    assert (lines["five_line"].best_other, lines["five_line"].beside_best) == ("rowmill", 0.8)
    assert lines["generate"].beside_baseline is None
    assert (ours.rows_s, ours.tokens_s, ours.cached_share) == (25.0, 250.0, 0.1)


def test_pairs_are_of_the_rounds_that_both_ran() -> None:
    runs = [*RUNS, run_of("run_batch", 1, 40.0)]

    line = next(one for one in lines_of(measured(*runs)) if one.contender == "run_batch")

    assert (line.runs, line.beside_baseline, line.beside_best) == (1, 0.25, 0.1)


def test_an_incomplete_run_is_in_no_figure_and_is_told() -> None:
    runs = [*RUNS[:-1], run_of("rowmill", 3, 0.001, invalid="5 answers missing")]

    found = measured(*runs)

    ours = lines_of(found)[-1]
    assert (ours.runs, ours.invalid, ours.least_s) == (2, 1, 4.0)
    assert "2, 1 INVALID" in markdown(found, MACHINE)
    assert "rowmill, round 3: INVALID: 5 answers missing" in markdown(found, MACHINE)


def test_a_contender_without_complete_runs_has_no_figures() -> None:
    found = measured(run_of("rowmill", 1, 1.0, invalid="1 answers missing"))

    assert "| rowmill | - | 0, 1 INVALID | - | - | - | - | - |" in markdown(found, MACHINE)


def test_a_table_stands_with_what_it_was_made_of() -> None:
    residents = [
        Resident(
            contenders=("generate",), start_s=70.0, gpu_bytes=3 << 30, about={"seats": 1024}
        ),
        Resident(
            contenders=("rowmill",),
            start_s=80.0,
            gpu_bytes=0,
            about={"replicas": 2, "reason": "2 a GPU", "seats": 512},
        ),
    ]
    text = markdown(measured(*RUNS, residents=residents, stopped="the time was over"), MACHINE)

    assert "### short, model, equal settings" in text
    assert "100 rows, 900 prompt tokens, 100 output tokens; 3 rounds" in text
    assert "`max_num_seqs=8`" in text
    assert "a machine" in text
    assert (
        "| generate | 12.00 (10.00 to 20.00) | 3 | 8 | 83 | 10% | 1 | 0.40x (rowmill) |" in text
    )
    assert (
        "| rowmill | 4.00 (3.00 to 10.00) | 3 | 25 | 250 | 10% | 2.50x | 1.25x (five_line) |"
        in text
    )
    assert "generate: started in 70.0 s, 3.0 GiB of GPU memory, seats 1,024" in text
    assert "replicas 2, reason 2 a GPU" in text
    assert "seats differ: 1024, 512" in text
    assert "Ended early: the time was over." in text


def test_nothing_measured_is_a_table_all_the_same() -> None:
    text = markdown(measured(failed={"generate": "not opened: no GPU"}, work=None), MACHINE)

    assert "generate took no further part: not opened: no GPU" in text


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=1, max_size=9))
def test_a_ratio_and_its_opposite_are_each_other_turned_over(
    pairs: list[tuple[float, float]],
) -> None:
    own = {i: run_of("rowmill", i, a) for i, (a, _) in enumerate(pairs)}
    other = {i: run_of("generate", i, b) for i, (_, b) in enumerate(pairs)}

    forth, back = ratio(own, other), ratio(other, own)

    assert forth is not None
    assert back is not None
    # The median of an even number is between two: no exact opposite.
    assert forth * back >= 1 - 1e-9 if len(pairs) % 2 == 0 else forth * back == pytest.approx(1)
