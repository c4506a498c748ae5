"""What the transformers adapter says without its library: settings, limits, which rows enter together."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import transformers
from rowmill.engines.transformers_draw import draw_of
from rowmill.engines.transformers_rows import Row, Sample
from rowmill.engines.transformers_run import alike
from rowmill.rows import Sampling

TINY = Path(__file__).parent.parent / "golden" / "tiny_model"


def engine(**settings: Any) -> EngineConfig:
    return EngineConfig.model_validate({"name": "transformers", "model": str(TINY), **settings})


def test_limits_come_from_the_models_files_and_the_settings() -> None:
    limits = transformers.declare(engine(seats=3, batch_tokens=900))

    assert (512, 3, 900) == (limits.max_model_tokens, limits.seats, limits.kv_tokens)
    assert "choices" not in limits.sampling


def test_limits_of_paged_batching_are_those_of_its_pages() -> None:
    limits = transformers.declare(engine(batching="paged", batch_tokens=300))
    padded = transformers.declare(engine(batching="padded", batch_tokens=300))

    assert (512, 300) == (padded.max_model_tokens, padded.kv_tokens)
    assert (512, 512) == (limits.max_model_tokens, limits.kv_tokens)
    small = transformers.declare(engine(batching="paged", batch_tokens=200))
    assert (256, 256) == (small.max_model_tokens, small.kv_tokens)
    assert (False, True) == (padded.shares_prefixes, limits.shares_prefixes)
    assert {"logprobs", "min_p", "seed_per_row"} <= {*padded.sampling} - {*limits.sampling}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"classify": {"labels": ["a", "b"]}}, "for answers in words"),
        ({"score": {}}, "for answers in words"),
        ({"max_model_len": 600, "batch_tokens": 500}, "`engine.batch_tokens` holds 512"),
        ({"batching": "pages"}, "`engine.batching`"),
    ],
)
def test_mistakes_of_paged_batching_are_named(settings: dict[str, Any], words: str) -> None:
    found = transformers.check_options(engine(**{"batching": "paged", **settings}))

    assert [] == transformers.check_options(engine(batching="paged", max_model_len=400))
    assert any(words in mistake for mistake in found)


def test_layers_without_pages_are_refused(tmp_path: Path) -> None:
    told = {
        "layer_types": ["full_attention", "chunked_attention"],
        "max_position_embeddings": 9,
    }
    (tmp_path / "config.json").write_text(json.dumps(told))
    transformers.declare(engine(model=str(tmp_path)))

    with pytest.raises(errors.ConfigError, match=r"`chunked_attention`.*\"padded\""):
        transformers.declare(engine(model=str(tmp_path), batching="paged"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_token": 5}, "did you mean `batch_tokens`"),
        ({"dtype": "int8"}, "`engine.dtype`"),
        ({"model": "/no/such"}, "there is no folder"),
        ({"tokenizer": "bytes"}, "a vocabulary of its own"),
    ],
)
def test_mistakes_are_named_without_the_library(settings: dict[str, Any], words: str) -> None:
    assert [] == transformers.check_options(engine())
    assert any(words in mistake for mistake in transformers.check_options(engine(**settings)))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"is_encoder_decoder": True, "model_type": "t5"}, "an encoder and a decoder"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "`linear_attention`"),
        ({"text_config": {"layer_types": ["mamba"]}}, "`mamba`"),
    ],
)
def test_models_whose_rows_cannot_stand_side_by_side_are_refused(
    config: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))

    with pytest.raises(errors.ConfigError, match=words):
        transformers.declare(engine(model=str(tmp_path)))


@pytest.mark.parametrize(
    ("sampling", "defaults", "temperature"),
    [
        (Sampling(), {}, 0.0),
        (Sampling(), {"temperature": 0.6}, 0.0),
        (Sampling(), {"do_sample": True, "temperature": 0.6}, 0.6),
        (Sampling(), {"do_sample": True}, 1.0),
        (Sampling(temperature=0), {"do_sample": True, "temperature": 0.6}, 0.0),
        (Sampling(top_p=0.9), {}, 1.0),
    ],
)
def test_who_is_drawn_from(
    sampling: Sampling, defaults: dict[str, Any], temperature: float
) -> None:
    assert temperature == draw_of(sampling, defaults).temperature


def samples(lengths: list[int]) -> list[Sample]:
    draw = draw_of(Sampling(temperature=0), {})
    return [
        Sample(
            Row(key, np.zeros(n, np.uint32), 4, 4, Sampling(), draw, time.monotonic(), 1, []),
            0,
            None,
            [],
            [],
        )
        for key, n in enumerate(lengths)
    ]


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=40),
    st.integers(1, 32),
    st.integers(1, 2000),
    st.integers(1, 5000),
    st.integers(0, 5),
    st.integers(0, 300),
)
def test_rows_that_enter_are_alike_and_within_the_budgets(
    lengths: list[int], rows: int, step: int, held: int, inside: int, width: int
) -> None:
    waiting = samples(lengths)
    chosen = alike(
        waiting, rows=rows, step_tokens=step, held_tokens=held, beside=(inside, width)
    )
    longest = max((sample.length for sample in chosen), default=0)

    assert len({id(sample) for sample in chosen}) == len(chosen) <= rows
    if not inside:
        assert waiting[0] is chosen[0]
    if len(chosen) > 1:
        assert len(chosen) * longest <= step
        padding = len(chosen) * longest - sum(sample.length for sample in chosen)
        assert len(chosen) * longest <= 256 or padding <= 0.15 * len(chosen) * longest
    if inside + len(chosen) > 1 and chosen:
        assert (inside + len(chosen)) * max(longest, width) <= held
