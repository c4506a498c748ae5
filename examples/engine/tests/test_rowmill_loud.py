"""The contract suite over the engine: what an engine author runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import rowmill_loud

from rowmill.config import EngineConfig
from rowmill.rows import Prompts, Sampling
from rowmill.testing import check_deaths, check_engine

ENGINE = EngineConfig(name="loud", tokenizer="bytes")


def rows() -> Prompts:
    """Rows as an engine gets them: token ids of all one behind the other, and where each ends."""
    texts = [b"one row", b"another", b"caf\xc3\xa9", b"x", b"a long one, to be cut"]
    return Prompts(
        keys=list(range(len(texts))),
        ids=np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32),
        stops=np.cumsum([len(text) for text in texts]),
        max_tokens=[16] * len(texts),
        samplings=[Sampling(temperature=0)],
        sampling_of=[0] * len(texts),
        wires=[],
        wire_fields=[],
    )


def test_loud_keeps_the_contract() -> None:
    outcomes = check_engine(rowmill_loud, ENGINE, rows=rows())

    assert outcomes[0].text == "ONE ROW!"


def test_loud_is_started_again_when_it_is_killed(tmp_path: Path) -> None:
    slow = EngineConfig.model_validate({**ENGINE.model_dump(), "pause_s": 0.2})

    check_deaths(slow, rows=rows(), log=tmp_path / "log")
