"""A window is tokenised and planned piece by piece, and comes out as if it were one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import PlanConfig
from rowmill.plan import pieces as module
from rowmill.plan import plan
from rowmill.plan.pieces import cut_pieces
from rowmill.rows import Prompts, Request, Sampling

GREEDY = Sampling(temperature=0, max_tokens=8)
TEXTS = st.lists(st.text("ab", min_size=1, max_size=30), min_size=1, max_size=60)


def requests(texts: list[str]) -> list[Request]:
    return [Request(key, GREEDY, text=text) for key, text in enumerate(texts)]


def measured(rows: list[Request]) -> Prompts:
    """A token a character."""
    texts = [row.text or "" for row in rows]
    return Prompts(
        keys=[row.key for row in rows],
        ids=np.array([ord(c) for text in texts for c in text], np.uint32),
        stops=np.cumsum([len(text) for text in texts], dtype=np.int64),
        max_tokens=[8] * len(rows),
        samplings=[GREEDY],
        sampling_of=[0] * len(rows),
        wires=[],
        wire_fields=[],
    )


@given(TEXTS, st.booleans(), st.integers(1, 40))
def test_pieces_planned_in_turn_are_the_window_planned_at_once(
    texts: list[str], is_ordered: bool, most: int
) -> None:
    rows = requests(texts)
    order = sorted(range(len(rows)), key=texts.__getitem__) if is_ordered else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FIRST_PIECE_CHARS", most)
        patch.setattr(module, "PIECE_CHARS", 2 * most)
        pieces = cut_pieces(rows, order)
    window = rows if order is None else [rows[i] for i in order]
    whole = plan(measured(window), PlanConfig())
    parts = [plan(measured(piece), PlanConfig()) for piece in pieces]

    assert window == [row for piece in pieces for row in piece]
    asked = [key for part in parts for batch in part.batches(7) for key in batch.keys]
    assert [key for batch in whole.batches(7) for key in batch.keys] == asked
    assert whole.copies == {k: v for part in parts for k, v in part.copies.items()}
    # A piece ends with the row that fills it, and with those that are equal to that.
    for piece in pieces if len(pieces) > 1 else []:
        own = [row.text or "" for row in piece]
        assert sum(len(text) for text in own if text != own[-1]) < 2 * most
