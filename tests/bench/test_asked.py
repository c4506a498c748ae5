"""Command line -> plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowmill.bench.asked import Asked, plans_of
from rowmill.bench.ours import engine_of
from rowmill.errors import BadJob
from tests.bench.tokenizers_of import word_tokenizer


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = word_tokenizer(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 2048}))
    return folder


def test_all_get_the_same_settings_and_a_share_of_the_memory(
    tmp_path: Path, model: Path
) -> None:
    sets = ("max_num_seqs=64", "quantization=fp8", "enforce_eager=true")

    (plan,) = plans_of(Asked(model=str(model), sets=sets), tmp_path)

    assert plan.contenders == ("generate", "sorted", "five_line", "run_batch", "rowmill")
    assert plan.spec.settings == {
        "max_num_seqs": 64,
        "quantization": "fp8",
        "enforce_eager": True,
        "gpu_memory_utilization": 0.3,
    }
    assert (plan.context, plan.rows) == (2048, 4000)
    engine = engine_of(plan.spec)
    assert (engine.name, engine.model, engine.seats) == ("vllm", str(model), 64)
    assert engine.options["gpu_memory_utilization"] == 0.3
    assert "max_num_seqs" not in engine.options


def test_a_workload_may_have_rows_and_rounds_of_its_own(tmp_path: Path, model: Path) -> None:
    asked = Asked(model=str(model), workload="short:90, mixed:80:5,system", rows=70, rounds=2)

    plans = plans_of(asked, tmp_path)

    assert [(one.workload, one.rows, one.rounds) for one in plans] == [
        ("short", 90, 2),
        ("mixed", 80, 5),
        ("system", 70, 2),
    ]
    assert plans[0].has_engines_of(plans[1])


@pytest.mark.parametrize(("defaults", "titles"), [("also", 2), ("only", 1)])
def test_defaults_leave_tuning_out_and_keep_pool_and_weights(
    tmp_path: Path, model: Path, defaults: str, titles: int
) -> None:
    sets = ("max_num_seqs=64", "max_num_batched_tokens=1024", "num_gpu_blocks_override=9")
    asked = Asked(model=str(model), sets=sets, defaults=defaults, memory_share=0.2)

    plans = plans_of(asked, tmp_path)

    assert len(plans) == titles
    assert plans[-1].title == "mixed, model, everybody's own defaults"
    assert plans[-1].spec.settings == {
        "num_gpu_blocks_override": 9,
        "gpu_memory_utilization": 0.2,
    }
    assert not plans[-1].is_equal


def test_a_share_that_is_set_stays(tmp_path: Path, model: Path) -> None:
    asked = Asked(
        model=str(model), contenders=("rowmill",), sets=("gpu_memory_utilization=0.5",)
    )

    (plan,) = plans_of(asked, tmp_path)

    assert plan.spec.settings == {"gpu_memory_utilization": 0.5}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, "no model is named"),
        ({"model": "/nowhere"}, "holds no config.json"),
        (
            {"model": "M", "contenders": ("ray",)},
            "there is no contender `ray`; known: `generate`",
        ),
        ({"model": "M", "slow": ("x",)}, "there is no contender `x`"),
        ({"model": "M", "workload": "x"}, "there is no workload `x`"),
        ({"model": "M", "workload": "short:0"}, "there is no workload `short:0`"),
        ({"model": "M", "workload": "short:9:2:1"}, "NAME[:ROWS[:ROUNDS]]"),
        ({"model": "M", "sets": ("eager",)}, "`--engine-set eager` is no KEY=VALUE"),
        ({"model": "M", "sets": ("max_num_sequences=1",)}, "unknown setting"),
        (
            {"tokenizer": "M", "engine": "echo", "contenders": ("generate",)},
            "contender `generate` is vLLM's",
        ),
        ({"tokenizer": "M", "engine": "echo", "sets": ("delay=1",)}, "delay"),
    ],
)
def test_mistakes_are_refused_in_words(
    tmp_path: Path, model: Path, asked: dict[str, str], sentence: str
) -> None:
    named = {key: str(model) if value == "M" else value for key, value in asked.items()}

    with pytest.raises(BadJob) as refused:
        plans_of(Asked(**named), tmp_path)  # type: ignore[arg-type]

    assert sentence in str(refused.value)
