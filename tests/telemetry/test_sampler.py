"""Moments -> samples; processes -> their use."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from rowmill.telemetry import Sampler
from rowmill.telemetry.gpus import Gpus, mean
from rowmill.telemetry.processes import Processes
from rowmill.telemetry.sample import GpuUse
from rowmill.telemetry.sampler import MOST_S, apart_s

WEEK_S = 7 * 86400
BURN = "import sys\nwhile True:\n  sum(range(10**5)); print(flush=True)"


def burn(seconds: float) -> None:
    """Use so much processor time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(10**4))


def test_a_week_leaves_some_thousand_samples_and_the_last_is_a_minute_old_at_most() -> None:
    passed_s, number = 0.0, 0
    while passed_s < WEEK_S:
        passed_s += apart_s(passed_s)
        number += 1

    assert 8_000 < number < 12_000
    assert 1 == apart_s(0) == apart_s(299)
    assert 60 == MOST_S == apart_s(WEEK_S)


def test_depths_are_means_since_the_sample_before_and_sums_are_as_they_are_now() -> None:
    sampler = Sampler()
    burn(0.1)
    for rows in (10, 20, 60):
        sampler.look({"waiting/feed": rows, "engine/kv_use": rows / 100})
    first = sampler.take({"rows_fed": 5, "engine": {"steps": 7}})
    sampler.look({"waiting/feed": 1})
    second = sampler.take({"rows_fed": 9})

    assert ({"feed": 30.0}, {"kv_use": 0.3, "steps": 7}) == (first.waiting, first.engine)
    assert ({"feed": 1.0}, {}) == (second.waiting, second.engine)
    assert (5, 9) == (first.rows_fed, second.rows_fed)
    assert second.cpu_s["rowmill"] >= first.cpu_s["rowmill"] > 0
    assert first.memory_bytes["rowmill"] > 2**20


def test_what_an_engine_used_is_counted_and_not_forgotten_when_it_ends() -> None:
    processes = Processes()
    command = [sys.executable, "-c", BURN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        while processes.look().get("engine") is None or not processes.look()["engine"].cpu_s:
            child.stdout.readline()
        alive = processes.look()["engine"]
        child.kill()
    gone = processes.look()["engine"]

    assert gone.cpu_s >= alive.cpu_s > 0
    assert (alive.memory_bytes > 0, gone.memory_bytes) == (True, 0)


def test_what_a_process_did_before_a_run_is_none_of_the_run() -> None:
    """A notebook that has computed for a minute, and runs a job from a thread of its own."""
    found: list[dict[str, float]] = []

    def run() -> None:
        sampler = Sampler()
        found.append(sampler.take({}).cpu_s)

    burn(0.5)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert {"rowmill", "rowmill/feed"} <= set(found[0])
    assert max(found[0].values()) < 0.3


def test_no_gpu_is_no_error_and_several_looks_are_one() -> None:
    gpus = Gpus()
    assert [] == gpus.look() or gpus.names()
    gpus.close()

    looks = [[GpuUse(index=3, use=share, memory_bytes=100)] for share in (0.2, 0.4)]

    assert [GpuUse(index=3, use=0.3, memory_bytes=100)] == mean(looks)
