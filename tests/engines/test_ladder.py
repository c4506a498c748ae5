"""Steps down: one setting each, in one order, and never below what works."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import EngineConfig
from rowmill.engines.ladder import Ladder, Step
from rowmill.engines.vllm_ladder import ladder
from rowmill.engines.vllm_options import EFFORT
from rowmill.rows import Limits

VLLM_ORDER = ["seats", "max_num_batched_tokens", "gpu_memory_utilization", "enforce_eager"]


def vllm(**options: object) -> EngineConfig:
    return EngineConfig.model_validate({"name": "vllm", "model": "m/m", **options})


def test_vllm_comes_down_in_the_order_that_costs_least() -> None:
    steps = Ladder(vllm())
    limits = Limits(seats=1024, step_tokens=16384)
    taken = []
    while (step := steps.step_down(limits)) is not None:
        taken.append(step)

    assert VLLM_ORDER == [step.setting for step in taken]
    assert [512, 8192, 0.828, True] == [step.after for step in taken]
    assert [None] * 4 == [step.given for step in taken]
    assert {"seats": 512, "enforce_eager": True}.items() <= steps.engine.model_dump().items()


def test_what_is_down_already_is_no_step() -> None:
    steps = Ladder(vllm(enforce_eager=True, seats=1, max_num_batched_tokens=512))
    first = steps.step_down(None)

    assert first is not None
    assert "gpu_memory_utilization" == first.setting
    assert steps.step_down(None) is None


def test_a_cache_of_given_size_shrinks_in_place_of_the_share() -> None:
    for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override", "cpu_kv_gib"):
        steps = {s: after for s, _, after in ladder(vllm(**{name: 1000}), None)}

        assert 900 == steps[name]
        assert "gpu_memory_utilization" not in steps


@given(st.integers(1, 4096), st.integers(1, 65536), st.one_of(st.none(), st.floats(0.05, 1.0)))
def test_steps_lower_and_change_no_answer(
    seats: int, step_tokens: int, share: float | None
) -> None:
    engine = vllm(gpu_memory_utilization=share)
    for name, before, after in ladder(engine, Limits(seats=seats, step_tokens=step_tokens)):
        assert name in EFFORT | {"seats"}
        assert after >= before if isinstance(after, bool) else 0 < after <= before
    after_all = {
        n: v for n, _, v in ladder(engine, Limits(seats=seats, step_tokens=step_tokens))
    }
    assert after_all["max_num_batched_tokens"] >= min(step_tokens, after_all["seats"])


def test_a_setting_that_the_user_changed_since_is_the_user_s_word() -> None:
    step = Step("seats", 64, 64, 32)

    assert 32 == Ladder(vllm(seats=64), [step]).engine.seats
    assert 48 == Ladder(vllm(seats=48), [step]).engine.seats
    assert Ladder(vllm(), [step]).engine.seats is None
