"""Which settings are worth a start, by engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowmill import prospect
from rowmill.config import EngineConfig, Job
from rowmill.executors.identity import is_identity
from rowmill.forecast.gathered import Gathered
from rowmill.prospect import limits_at, places_of
from rowmill.rows import Limits
from rowmill.size import Gpu, read_shape
from rowmill.size.gpus import gpu_named
from rowmill.tune.moves import levels_of, moves_of, step_tokens_of
from rowmill.tune.sweep import sampled
from tests.test_prospect import grouped, model

LIMITS = Limits(seats=64, step_tokens=4096, kv_tokens=32_768)
ENGINES = {
    "vllm": {"model": "m"},
    "llamacpp": {"model": "m.gguf"},
    "transformers": {"model": "m"},
    "onnx": {"model": "m"},
    "http": {"url": "http://127.0.0.1:1"},
}


@pytest.mark.parametrize("name", ENGINES)
def test_no_move_changes_answers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prospect, "gpus_here", tuple)
    engine = EngineConfig.model_validate({"name": name, **ENGINES[name]})
    job = Job.model_validate({"source": "x", "output": "y", "engine": engine.model_dump()})

    chains = moves_of(job, LIMITS, Gathered())

    assert chains
    changed = {key for chain in chains for move in chain for key in move.changes}
    assert not any(is_identity(engine, key) for key in changed)
    assert all(move.why and 0 < move.gain < 1 for chain in chains for move in chain)


def test_fewer_rows_at_once_are_tried_without_a_start() -> None:
    engine = EngineConfig(name="vllm")

    assert levels_of(engine, Limits(seats=256)) == [256, 128, 64]
    assert levels_of(engine, Limits(seats=2, replicas=2)) == [2]
    assert levels_of(engine, Limits(seats=256, pads=True)) == [256]
    assert levels_of(EngineConfig(name="http"), Limits(seats=64)) == [64, 32, 16, 8]


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = gpu_named("H200")
    assert gpu is not None
    monkeypatch.setattr(prospect, "gpus_here", lambda: (gpu,))
    return gpu


def test_on_a_known_gpu_moves_are_those_that_gain_as_the_engine_is_played(
    tmp_path: Path, h200: Gpu
) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(f'{{"prompt": "{text}"}}\n' for text in grouped(60, 8)))
    own: dict[str, object] = {"name": "vllm", "model": str(model(tmp_path / "model", "7b"))}
    own |= {"seats": 4, "max_num_batched_tokens": 256, "replicas": 1}
    job = Job.model_validate(
        {
            "source": str(source),
            "raw": True,
            "engine": own,
            "sampling": {"temperature": 0, "max_tokens": 32, "ignore_eos": True},
        }
    )
    opened, _, gathered = sampled(job, tmp_path / "spool")
    (here,) = places_of(job)
    limits = limits_at(job, opened.words.limits, here)

    chains = moves_of(job, limits, gathered)

    # Four rows at once on such a GPU: seats are what is wrong.
    gains = {move.chain: move.gain for chain in chains for move in chain}
    assert gains["seats"] > 1.0
    assert gains.get("all", 1e9) >= gains["seats"]


def test_the_token_budget_doubles_until_the_memory_is_full(tmp_path: Path, h200: Gpu) -> None:
    folder = model(tmp_path / "model", "7b")
    shape, gathered = read_shape(folder), Gathered()
    assert shape is not None
    engine = EngineConfig(name="vllm", model=str(folder))
    gathered.totals.rows = 10_000
    gathered.totals.prompt_tokens = 10_000 * 1000

    assert list(step_tokens_of(engine, h200, shape, gathered)) == [8192, 32_768, 65_536]

    # 1,024 rows of 1,930 tokens: 113 GB of cache beside 15 GB of weights leave 4 GB for activations.
    gathered.totals.prompt_tokens = 10_000 * 1930
    assert list(step_tokens_of(engine, h200, shape, gathered)) == [8192, 32_768]
