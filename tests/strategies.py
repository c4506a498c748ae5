"""Hypothesis: rows, outcomes, length mixes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from rowmill.rows import Choice, Outcome, Prompts, Sampling

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def outcomes_of(keys: list[int]) -> st.SearchStrategy[list[Outcome]]:
    """One outcome of either fate for each key, in the given order."""
    return st.tuples(*(one_outcome(key) for key in keys)).map(list)


def one_outcome(key: int) -> st.SearchStrategy[Outcome]:
    """An outcome of either fate."""
    ok = st.builds(
        Outcome,
        key=st.just(key),
        status=st.just("ok"),
        text=TEXTS,
        finish_reason=st.sampled_from(["stop", "length"]),
        choices=st.lists(st.builds(Choice, index=st.integers(0, 3), text=TEXTS), max_size=2),
        prompt_tokens=st.integers(0, 1000),
        output_tokens=st.integers(0, 1000),
        attempts=st.integers(1, 3),
        copied_from=st.one_of(st.none(), st.just("in.jsonl:1")),
    )
    failed = st.builds(
        Outcome,
        key=st.just(key),
        status=st.just("error"),
        error_kind=st.sampled_from(["invalid", "too_long", "refused"]),
        error=TEXTS,
    )
    return st.one_of(ok, failed)


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
