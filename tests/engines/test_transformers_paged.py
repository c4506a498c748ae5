"""Paged batching of the transformers adapter with the real library, on a CPU."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import transformers
from rowmill.engines.transformers_paged import PagedTransformers
from rowmill.engines.transformers_pages import PAGE_TOKENS
from rowmill.rows import Outcome, Prompts, Sampling
from rowmill.testing import check_deaths, check_engine
from tests.engines.feeds import ListFeed, answers_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),
]
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TINY = Path(__file__).parent.parent / "golden" / "tiny_model"
VOCABULARY = 264
PLAIN = Sampling(temperature=0, return_token_ids=True)
FULL = Sampling(temperature=0, ignore_eos=True, return_token_ids=True)
SMALL = {"batch_tokens": 2048, "prompt_tokens": 256}


def engine(**settings: Any) -> EngineConfig:
    said = {"name": "transformers", "model": str(TINY), "threads": 1, "batching": "paged"}
    return EngineConfig.model_validate({**said, **SMALL, **settings})


def opened(**settings: Any) -> PagedTransformers:
    found = transformers.open(engine(**settings))
    assert isinstance(found, PagedTransformers)
    return found


def prompts(
    rows: list[list[int]], *samplings: Sampling, max_tokens: int | list[int] = 8
) -> Prompts:
    each = list(samplings) or [FULL]
    return Prompts(
        keys=list(range(len(rows))),
        ids=np.array([token for row in rows for token in row], np.uint32),
        stops=np.cumsum([len(row) for row in rows], dtype=np.int64),
        max_tokens=[max_tokens] * len(rows) if isinstance(max_tokens, int) else max_tokens,
        samplings=each,
        sampling_of=list(range(len(rows))) if len(each) > 1 else [0] * len(rows),
        wires=[],
        wire_fields=[],
    )


def drawn_rows(count: int, seed: int, longest: int = 60, shortest: int = 1) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [
        random.integers(3, VOCABULARY, int(length)).tolist()
        for length in random.integers(shortest, longest, count)
    ]


def ask(asked: Prompts, **settings: Any) -> list[Outcome]:
    return answers_of(transformers.open(engine(**settings)), asked)


def ids_of(outcomes: list[Outcome]) -> list[list[list[int] | None]]:
    return [[choice.token_ids for choice in outcome.choices] for outcome in outcomes]


def share_of_equal(some: list[Outcome], others: list[Outcome]) -> float:
    pairs = zip(ids_of(some), ids_of(others), strict=True)
    return sum(one == other for one, other in pairs) / len(some)


@pytest.mark.parametrize("settings", [{}, {"seats": 2}, {"seats": 4, "batch_tokens": 512}])
def test_paged_batching_keeps_the_contract(settings: dict[str, int]) -> None:
    check_engine(
        transformers, engine(**settings), rows=prompts(drawn_rows(8, seed=4), max_tokens=10)
    )


@pytest.mark.parametrize("sampling", [PLAIN, FULL])
@pytest.mark.parametrize("settings", [{"seats": 3}, {"seats": 32}])
def test_greedy_answers_are_those_of_padded_rows(
    sampling: Sampling, settings: dict[str, int]
) -> None:
    lengths = np.random.default_rng(3).integers(1, 60, 40).tolist()
    asked = prompts(drawn_rows(40, seed=2, longest=300), sampling, max_tokens=lengths)
    paged, padded = ask(asked, **settings), ask(asked, batching="padded")

    assert ["ok"] * 40 == [outcome.status for outcome in paged]
    assert share_of_equal(paged, padded) >= 0.95
    for one, other in zip(paged, padded, strict=True):
        if ids_of([one]) == ids_of([other]):
            assert other.text == one.text
            assert other.finish_reason == one.finish_reason
            assert other.output_tokens == one.output_tokens
            assert other.prompt_tokens == one.prompt_tokens


def test_layers_with_a_window_are_answered_as_with_padded_rows(tmp_path: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(3)
    small = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        use_sliding_window=True,
        sliding_window=32,
        max_window_layers=2,
        initializer_range=0.3,
        eos_token_id=1,
        bos_token_id=0,
    )
    assert {"full_attention", "sliding_attention"} == set(small.layer_types)
    Qwen2ForCausalLM(small).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, tmp_path)
    asked = prompts(drawn_rows(40, seed=5, longest=200), FULL, max_tokens=30)
    paged = ask(asked, model=str(tmp_path), seats=8, batch_tokens=1024)
    padded = ask(asked, model=str(tmp_path), batching="padded")

    assert share_of_equal(paged, padded) >= 0.95


def test_greedy_rows_stand_beside_drawn_ones() -> None:
    rows = drawn_rows(30, seed=6)
    hot = Sampling(temperature=3.0, ignore_eos=True, return_token_ids=True)
    samplings = [(FULL, hot, msgspec_top(hot, top_k=1))[i % 3] for i in range(30)]
    asked = prompts(rows, *samplings, max_tokens=12)
    paged, greedy = ask(asked, seats=8), ask(prompts(rows, max_tokens=12), batching="padded")

    assert ["ok"] * 30 == [outcome.status for outcome in paged]
    # A draw from one token is no draw, whatever the temperature beside it.
    assert share_of_equal(paged[::3] + paged[2::3], greedy[::3] + greedy[2::3]) >= 0.95
    assert share_of_equal(paged[1::3], greedy[1::3]) < 0.5


def msgspec_top(sampling: Sampling, **changes: Any) -> Sampling:
    import msgspec

    return msgspec.structs.replace(sampling, **changes)
