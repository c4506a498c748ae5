"""What no order can beat: no forecast does, whatever the rows, their order, the cache, and how many of them are looked at."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rowmill.forecast import blocks, gathered
from rowmill.forecast.blocks import BLOCK
from rowmill.forecast.engine import Settings, play
from rowmill.forecast.foretold import Foretold, Setting, foretell
from rowmill.forecast.gathered import Gathered
from rowmill.rows import Prompts, Sampling
from rowmill.size import Budget
from rowmill.size.fit import fit
from tests.forecast.test_engine import H200, model, shape

BUDGET = Budget(0.92, 64, 512)
ROWS = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0, 1, 2]), max_size=5),
        st.integers(0, 2 * BLOCK),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=40,
)
"""Of each row: blocks that others may begin with as well, tokens of its own, tokens of its answer."""


def prompts_of(rows: list[tuple[list[int], int, int]]) -> Prompts:
    """Rows of token ids; where a row has nothing of its own, it is the beginning of others, or the same as they."""
    parts = [
        np.concatenate(
            [
                np.repeat(np.array(shared, np.uint32), BLOCK),
                np.full(own, 100 + at, np.uint32),
                # The last token may be one that others have, too.
                np.full(1, 7, np.uint32),
            ]
        )
        for at, (shared, own, _) in enumerate(rows)
    ]
    return Prompts(
        keys=list(range(len(rows))),
        ids=np.concatenate(parts),
        stops=np.cumsum([len(part) for part in parts]),
        max_tokens=[answer for *_, answer in rows],
        samplings=[Sampling(ignore_eos=True)],
        sampling_of=[0] * len(rows),
        wires=[],
        wire_fields=[],
    )


@given(ROWS, st.data())
def test_no_order_and_no_cache_find_more_than_the_bound(
    rows: list[tuple[list[int], int, int]], data: st.DataObject
) -> None:
    found = Gathered()
    found.add(prompts_of(rows).take(data.draw(st.permutations(range(len(rows))))))
    most = BLOCK * (found.totals.blocks - found.distinct.count())
    told = Settings(
        seats=data.draw(st.integers(1, 12)),
        step_tokens=data.draw(st.integers(16, 300)),
        pool_tokens=data.draw(st.integers(8, 60)) * BLOCK,
    )
    engines = data.draw(st.integers(1, 3))
    with_room = msgspec.structs.replace(told, pool_tokens=0)

    for as_read in (False, True):
        fed = found.fed(engines, as_read=as_read)
        assert play(fed, told, model()).cached_tokens <= most
        # With room for all, one engine finds just so much: no bound is nearer.
        assert play(found.fed(1, as_read=as_read), with_room, model()).cached_tokens == most


def foretold(parts: list[Prompts], pool_tokens: int) -> Foretold:
    found = Gathered()
    for part in parts:
        found.add(part)
    fitted = fit(shape("1.5b"), H200, BUDGET, longest_tokens=100, cores=16)
    fitted = msgspec.structs.replace(fitted, pool_tokens=pool_tokens)
    return foretell(found, Setting(shape=shape("1.5b"), gpu=H200, fit=fitted, budget=BUDGET))


@given(ROWS, ROWS, st.integers(8, 60), st.sampled_from([32, 1 << 22]))
@example([([0, 1, 2], 1, 4)] * 20, [([], 32, 4)] * 20, 60, 1 << 22)
def test_the_first_rows_foretell_no_more_than_all_rows_share(
    first: list[tuple[list[int], int, int]],
    rest: list[tuple[list[int], int, int]],
    pool_blocks: int,
    most_kept: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathered, "SAMPLE_ROWS", 1)  # the first rows alone are played
        patch.setattr(blocks, "MOST_KEPT", most_kept)  # of more, an even choice is counted
        one = foretold([prompts_of(first), prompts_of(rest)], pool_blocks * BLOCK)

    assert one.hit_rate <= one.bounds.hit_rate
    assert one.file_hit_rate <= one.bounds.hit_rate


def test_rows_behind_the_first_ones_take_what_they_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short, long = (prompts_of([([], own, 8)] * 400) for own in (40, 400))
    monkeypatch.setattr(gathered, "SAMPLE_ROWS", 400)
    found = foretold([short, long], 0)
    monkeypatch.undo()
    whole = foretold([short, long], 0)

    assert (found.sampled_rows, whole.sampled_rows) == (400, 800)
    assert found.seconds - 0.4 == pytest.approx(whole.seconds - 0.4, rel=0.35)
