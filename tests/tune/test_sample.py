"""Rows of a job in an order of which every stretch is like the whole."""

from __future__ import annotations

import numpy as np

from rowmill.config import PlanConfig
from rowmill.forecast.learned import Learned, asked_of
from rowmill.plan import plan
from rowmill.rows import Prompts, Sampling
from rowmill.tune.sample import LIKE_ROWS, Sample


def prompts_of(texts: list[list[int]], most: list[int], *, first_key: int = 0) -> Prompts:
    return Prompts(
        keys=[first_key + i for i in range(len(texts))],
        ids=np.array([id_ for text in texts for id_ in text], np.uint32),
        stops=np.cumsum([len(text) for text in texts]),
        max_tokens=most,
        samplings=[Sampling(temperature=0), Sampling(temperature=0, ignore_eos=True)],
        sampling_of=[i % 2 for i in range(len(texts))],
        wires=[],
        wire_fields=[],
    )


def sample_of(*windows: Prompts) -> Sample:
    found = Sample()
    for window in windows:
        found.add(plan(window, PlanConfig(duplicates="ask")))
    return found


def mixed(rows: int, seed: int, first_key: int = 0) -> Prompts:
    draw = np.random.default_rng(seed)
    lengths = np.maximum(2, draw.lognormal(4, 1, rows)).astype(int)
    texts = [draw.integers(0, 1000, n).tolist() for n in lengths]
    return prompts_of(texts, draw.choice([16, 64, 256], rows).tolist(), first_key=first_key)


def test_every_row_comes_once_with_its_own_tokens_and_settings() -> None:
    windows = [mixed(200, 1), mixed(100, 2, first_key=1000)]
    tokens = {
        k: ids.tolist() for w in windows for k, ids in zip(w.keys, w.row_ids(), strict=True)
    }

    whole = Prompts.join(list(sample_of(*windows).stream()))

    assert sorted(whole.keys) == sorted(tokens)
    assert {k: i.tolist() for k, i in zip(whole.keys, whole.row_ids(), strict=True)} == tokens
    asked = {k: w.max_tokens[i] for w in windows for i, k in enumerate(w.keys)}
    assert dict(zip(whole.keys, whole.max_tokens, strict=True)) == asked
    exact = [whole.samplings[i].ignore_eos for i in whole.sampling_of]
    assert exact == [key % 2 == 1 for key in whole.keys]


def test_every_stretch_is_like_the_whole() -> None:
    sample = sample_of(mixed(2000, 3))
    rows = Prompts.join(list(sample.stream()))
    asked = asked_of(rows)
    work = asked.lengths + 3.0 * asked.most

    parts = [work[at : at + 250].mean() for at in range(0, 2000, 250)]

    # Drawn at random, means of 250 such rows would differ by 5% and more.
    assert np.std(parts) / work.mean() < 0.03


def test_rows_that_begin_alike_stay_together() -> None:
    draw = np.random.default_rng(4)
    root = draw.integers(0, 1000, 50).tolist()
    texts = []
    for _ in range(300):
        begun = draw.integers(0, 1000, 100).tolist()
        texts += [root + begun + draw.integers(0, 1000, 10).tolist() for _ in range(4)]

    parts = list(sample_of(prompts_of(texts, [8] * 1200)).stream())

    assert {len(part) for part in parts} == {4}
    assert all(part.keys[0] % 4 == 0 for part in parts)


def test_rows_longest_first_stay_together_by_sixteen() -> None:
    rows = mixed(2000, 5)
    order = sorted(range(len(rows)), key=lambda i: -rows.max_tokens[i])
    falling, mixed_up = Sample(), Sample()
    for sample, window in ((falling, rows.take(order)), (mixed_up, rows)):
        sample.add(plan(window, PlanConfig(order="file", duplicates="ask")))

    pieces = list(falling.stream())

    assert {LIKE_ROWS} == {len(piece) for piece in pieces}
    assert all(max(p.max_tokens) <= 4 * min(p.max_tokens) for p in pieces)
    assert {1} == {len(piece) for piece in mixed_up.stream()}
    # A stretch of them is like the whole all the same.
    whole = np.mean(rows.max_tokens)
    for start in range(0, 2000 // LIKE_ROWS - 25, 25):
        part = Prompts.join(pieces[start : start + 25])
        assert abs(np.mean(part.max_tokens) - whole) < 0.15 * whole


def test_what_all_rows_begin_with_keeps_none_together() -> None:
    draw = np.random.default_rng(5)
    root = draw.integers(0, 1000, 500).tolist()
    texts = [root + draw.integers(0, 1000, 20).tolist() for _ in range(300)]

    parts = list(sample_of(prompts_of(texts, [8] * 300)).stream())

    assert {len(part) for part in parts} == {1}


def test_sums_are_those_of_its_rows() -> None:
    window = mixed(100, 6)
    sample = sample_of(window)
    exact = [most for i, most in enumerate(window.max_tokens) if i % 2]
    free = [most for i, most in enumerate(window.max_tokens) if i % 2 == 0 and most > 16]
    short = [most for i, most in enumerate(window.max_tokens) if i % 2 == 0 and most <= 16]

    assert sample.prompt_tokens == len(window.ids)
    # Nothing is learnt yet: half of what is allowed, and short ones and fixed ones whole.
    assert sample.answers(Learned()) == sum(exact) + sum(short) + sum(
        most // 2 for most in free
    )
