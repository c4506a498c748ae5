"""Replicas: several on a GPU for small models, one for large ones, one a group with tensor parallel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import vllm_place
from rowmill.engines.vllm_place import place, step_budget
from rowmill.size import Gpu
from rowmill.size.gpus import rates_of
from rowmill.size.replicas import number_for
from rowmill.size.shape import shape_of

H200 = Gpu(0, "NVIDIA H200", 143_771 << 20, 0, *rates_of("NVIDIA H200", 143_771 << 20))
SHAPES = {
    "0.5b": (896, 4864, 24, 14, 2, 151936, True),
    "1.5b": (1536, 8960, 28, 12, 2, 151936, True),
    "7b": (3584, 18944, 28, 28, 4, 152064, False),
}
"""Hidden, intermediate, layers, heads, KV heads, vocabulary, tied: as published for Qwen2.5."""


def config_of(name: str) -> dict[str, Any]:
    hidden, inter, layers, heads, kv_heads, vocab, tied = SHAPES[name]
    return {
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
    }


def engine(folder: Path, name: str, **options: Any) -> EngineConfig:
    (folder / "config.json").write_text(json.dumps(config_of(name)))
    return EngineConfig(name="vllm", model=str(folder), **options)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """The GPUs that the driver tells of, to be filled; 16 cores."""
    found: list[Gpu] = [H200]
    monkeypatch.setattr(vllm_place, "gpus_seen", lambda _: found)
    monkeypatch.setattr(vllm_place, "_cores", lambda: 16)
    return found


@pytest.mark.parametrize(
    ("name", "least", "most"), [("0.5b", 4, 6), ("1.5b", 1, 3), ("7b", 1, 1)]
)
def test_small_models_get_several_engines_a_gpu(name: str, least: int, most: int) -> None:
    shape = shape_of(config_of(name))
    assert shape is not None
    number, reason = number_for(shape, H200, step_budget({}, H200, None), 16)

    assert least <= number <= most
    assert "ms on the GPU" in reason


def test_few_cores_allow_few_engines() -> None:
    shape = shape_of(config_of("0.5b"))
    assert shape is not None

    assert number_for(shape, H200, step_budget({}, H200, None), 4)[0] == 1


def test_engines_of_one_gpu_share_its_memory(tmp_path: Path, gpus: list[Gpu]) -> None:
    placed = place(engine(tmp_path, "0.5b"))
    replicas = placed.replicas

    assert len(replicas) > 3
    kv = [replica.engine.options["kv_cache_memory_bytes"] for replica in replicas]
    weights = len(replicas) * 1.0e9
    assert 0.5 * gpus[0].memory_bytes < sum(kv) + weights < 0.92 * gpus[0].memory_bytes
    assert all(r.environment == {"CUDA_VISIBLE_DEVICES": "0"} for r in replicas)
    assert all("replicas" not in r.engine.options for r in replicas)
    assert all(r.engine.seats is None for r in replicas)


def test_a_pinned_pool_keeps_one_engine_a_gpu(tmp_path: Path, gpus: list[Gpu]) -> None:
    placed = place(engine(tmp_path, "0.5b", num_gpu_blocks_override=12000))

    assert len(placed.replicas) == len(gpus)
    assert "num_gpu_blocks_override" in placed.reason


def test_tensor_parallel_takes_groups_of_gpus(tmp_path: Path, gpus: list[Gpu]) -> None:
    gpus += [Gpu(i, H200.name, H200.memory_bytes) for i in (1, 2, 3)]
    placed = place(engine(tmp_path, "7b", tensor_parallel_size=2))

    assert [r.environment["CUDA_VISIBLE_DEVICES"] for r in placed.replicas] == ["0,1", "2,3"]
    with pytest.raises(errors.ConfigError, match="8, and this process may use 4"):
        place(engine(tmp_path, "7b", tensor_parallel_size=4, pipeline_parallel_size=2))


def test_a_given_number_is_spread_over_the_gpus(tmp_path: Path, gpus: list[Gpu]) -> None:
    gpus.append(Gpu(1, H200.name, H200.memory_bytes))
    placed = place(engine(tmp_path, "7b", replicas=4))

    assert [r.environment["CUDA_VISIBLE_DEVICES"] for r in placed.replicas] == [
        "0",
        "0",
        "1",
        "1",
    ]


@pytest.mark.parametrize(("given", "seen"), [(1, ["0"]), (3, ["0", "0", "1"]), (2, ["0", "1"])])
def test_a_given_number_is_kept_to(
    tmp_path: Path, gpus: list[Gpu], given: int, seen: list[str]
) -> None:
    gpus.append(Gpu(1, H200.name, H200.memory_bytes))
    placed = place(engine(tmp_path, "7b", replicas=given))

    assert seen == [r.environment["CUDA_VISIBLE_DEVICES"] for r in placed.replicas]


def test_a_pool_that_is_given_is_that_of_each_gpu(tmp_path: Path, gpus: list[Gpu]) -> None:
    given = {"kv_cache_memory_bytes": 57_344 * 1000}
    one = vllm_place.pool_of(engine(tmp_path, "7b", **given))
    gpus += [Gpu(i, H200.name, H200.memory_bytes) for i in (1, 2, 3)]
    wide = engine(tmp_path, "7b", tensor_parallel_size=2, **given)

    assert 1000 == one
    assert 4000 == vllm_place.pool_of(engine(tmp_path, "7b", **given))
    assert 1000 == vllm_place.pool_of(engine(tmp_path, "7b", replicas=1, **given))
    assert 4000 == vllm_place.pool_of(wide)


def test_without_gpus_there_is_one_engine(tmp_path: Path, gpus: list[Gpu]) -> None:
    gpus.clear()

    assert [r.environment for r in place(engine(tmp_path, "7b")).replicas] == [{}]
