"""`plan.profile`: what it fills in, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from rowmill.config import Job
from rowmill.executors.profiles import profile_reason, profiled
from rowmill.feed import Feed
from rowmill.rows import Limits


def job(**settings: Any) -> Job:
    return Job.model_validate(
        {"source": "x", "engine": {"name": "vllm", "model": "m"}, **settings}
    )


def test_a_batch_is_left_as_it_is() -> None:
    one = job()

    assert profiled(one) == one
    assert profile_reason(one).startswith("batch: 512 to 2,048 seats")


@pytest.mark.parametrize(
    ("profile", "seats", "step_tokens"), [("nearline", 256, 8192), ("online", 128, 4096)]
)
def test_what_is_open_is_filled_in(profile: str, seats: int, step_tokens: int) -> None:
    found = profiled(job(plan={"profile": profile}))

    assert found.engine.seats == seats
    assert found.engine.options["max_num_batched_tokens"] == step_tokens
    assert found.run.checkpoint_s == 15.0
    assert "usual" in profile_reason(found)


def test_what_is_set_stays() -> None:
    engine = {"name": "vllm", "model": "m", "seats": 7, "gpu_memory_utilization": 0.5}
    found = profiled(
        job(
            engine=engine,
            plan={"profile": "nearline", "deadline_s": 4},
            run={"checkpoint_s": 1},
        )
    )

    assert found.engine.seats == 7
    assert found.engine.options["gpu_memory_utilization"] == 0.5
    assert found.run.checkpoint_s == 1


def test_other_engines_keep_their_own_seats() -> None:
    found = profiled(job(engine={"name": "echo"}, plan={"profile": "online"}))

    assert found.engine.seats is None
    assert found.run.checkpoint_s == 15.0


def test_rows_that_are_wanted_soon_wait_less_before_the_engine() -> None:
    def target(ahead_s: float) -> int:
        now = [0.0]
        feed = Feed(Limits(seats=10), prove_rows=0, ahead_s=ahead_s, clock=lambda: now[0])
        feed.sent(1000, 1000)
        now[0] = 1.0
        feed.answered(1000)
        return feed.target_rows

    assert 10 < target(0.25) < target(2.0)
