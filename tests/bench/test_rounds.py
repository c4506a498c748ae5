"""Rounds with the echo engine: real processes, real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from rowmill.bench.asked import Asked, plans_of
from rowmill.bench.records import Failed, Measured, Ready, Spec, Task
from rowmill.bench.residents import OutOfTimeError, Process
from rowmill.bench.rounds import Plan, measure_all, turns
from rowmill.bench.table import lines_of
from rowmill.bench.watch import flow_of
from rowmill.bench.words import Words
from rowmill.bench.workloads import write_workload
from tests.bench.tokenizers_of import word_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def plan_of(tokenizer: Path, folder: Path, **asked: object) -> Plan:
    command = {"engine": "echo", "tokenizer": str(tokenizer), "workload": "short", "rows": 60}
    return plans_of(Asked(**{**command, **asked}), folder)[0]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def enough_s(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """So many seconds are enough to open an engine and for a quick round, as busy as this machine is."""
    folder = tmp_path_factory.mktemp("enough")
    began = time.monotonic()
    measure_all([plan_of(tokenizer, folder, rounds=1)], folder, tell=lambda _: None)
    return 2 + 2.5 * (time.monotonic() - began)


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def test_the_order_rotates_and_the_slow_ones_stop() -> None:
    spec = Spec(model="", tokenizer="", engine="vllm", settings={}, folder="")
    plan = Plan(
        title="",
        workload="short",
        rows=1,
        contenders=("generate", "run_batch", "rowmill"),
        spec=spec,
        rounds=4,
        slow=("run_batch",),
        slow_rounds=2,
    )

    assert list(turns(plan)) == [
        (1, ["generate", "rowmill", "run_batch"]),
        (2, ["rowmill", "generate", "run_batch"]),
        (3, ["generate", "rowmill"]),
        (4, ["rowmill", "generate"]),
    ]


def test_rounds_are_measured_and_told(tmp_path: Path, tokenizer: Path) -> None:
    told: list[str] = []
    kept: list[list[Measured]] = []
    plan = plan_of(tokenizer, tmp_path, rounds=2, profile=True)

    (found,) = measure_all([plan], tmp_path, tell=told.append, keep=kept.append)

    assert [(run.contender, run.round, run.invalid) for run in found.runs] == [
        ("rowmill", 1, ""),
        ("rowmill", 2, ""),
    ]
    assert found.work is not None
    assert all(run.rows == 60 and run.prompt_tokens == 60 * 41 for run in found.runs)
    assert found.runs[0].output_tokens == found.work.output_tokens
    assert found.seeds == [1, 2]
    assert (found.failed, found.stopped) == ({}, "")
    assert [len(some[0].runs) for some in kept] == [1, 2, 2]
    assert "warm-up: rowmill" in "\n".join(told)
    (line,) = lines_of(found)
    assert line.runs == 2
    profile = found.runs[0].profile
    assert profile is not None
    assert profile["threads_cpu_s"]["feed, publish"] > 0
    assert profile["mean_in_flight"] > 0
    assert len(profile["engines_cpu_s"]) == 1
    left = {path.name for path in tmp_path.iterdir()}
    assert not [name for name in left if name.startswith(("out-", "round-"))]


def test_engines_stay_open_for_the_next_plan_of_the_same(
    tmp_path: Path, tokenizer: Path
) -> None:
    told: list[str] = []
    plans = [plan_of(tokenizer, tmp_path, rounds=1) for _ in range(2)]

    found = measure_all(plans, tmp_path, tell=told.append)

    assert [len(one.runs) for one in found] == [1, 1]
    assert sum("open after" in line for line in told) == 1


def test_echo_side_by_side_is_told(tmp_path: Path, tokenizer: Path) -> None:
    plan = plan_of(tokenizer, tmp_path, rounds=1, sets=("replicas=2",))

    (found,) = measure_all([plan], tmp_path, tell=lambda _: None)

    assert found.residents[0].about["replicas"] == 2
    assert found.residents[0].about["reason"] == "2: given"


@pytest.mark.slow
def test_a_deadline_within_a_run_ends_it_and_keeps_what_there_is(
    tmp_path: Path, tokenizer: Path, enough_s: float
) -> None:
    slow = ("delay_s=0.02", "max_num_seqs=1", 'answer="text"')  # 60 rows: 1.2 s
    plan = plan_of(tokenizer, tmp_path, rounds=1000, sets=slow)

    began = time.monotonic()
    (found,) = measure_all([plan], tmp_path, tell=lambda _: None, max_seconds=enough_s)

    assert time.monotonic() - began < 60 + enough_s
    assert found.stopped == "the time was over"
    assert 0 < len(found.runs) < 1000
    assert all(not run.invalid for run in found.runs)


@pytest.mark.slow
def test_a_deadline_within_the_first_run_ends_it_at_once(
    tmp_path: Path, tokenizer: Path, enough_s: float
) -> None:
    hung = ('answer="text"', 'faults=[{contains="", action="hang"}]')
    plan = plan_of(tokenizer, tmp_path, sets=hung)

    (found,) = measure_all([plan], tmp_path, tell=lambda _: None, max_seconds=enough_s)

    assert (found.runs, found.stopped) == ([], "the time was over")
    assert len(found.residents) == 1


def test_no_time_at_all_is_an_empty_table(tmp_path: Path, tokenizer: Path) -> None:
    plan = plan_of(tokenizer, tmp_path)

    (found,) = measure_all([plan], tmp_path, tell=lambda _: None, max_seconds=0.05)

    assert (found.runs, found.stopped) == ([], "the time was over")
    assert measure_all([plan], tmp_path, tell=lambda _: None, max_seconds=0) == []


def test_an_engine_that_cannot_be_opened_is_told(tmp_path: Path, tokenizer: Path) -> None:
    plan = plan_of(tokenizer, tmp_path)
    broken = msgspec.structs.replace(
        plan.spec, settings={"tokenizer": str(tmp_path / "none"), "answer": "text"}
    )

    (found,) = measure_all(
        [msgspec.structs.replace(plan, spec=broken)], tmp_path, tell=lambda _: None
    )

    assert "not opened: " in found.failed["rowmill"]
    assert (found.runs, found.residents) == ([], [])


def test_rows_that_fail_make_a_run_invalid(tmp_path: Path, tokenizer: Path) -> None:
    faults = 'faults=[{contains="", action="error"}]'
    plan = plan_of(tokenizer, tmp_path, rounds=1, sets=('answer="text"', faults))

    (found,) = measure_all([plan], tmp_path, tell=lambda _: None)

    assert found.runs[0].invalid == "60 answers failed"


def open_process(folder: Path, tokenizer: Path, *, deadline: float) -> Process:
    spec = plan_of(tokenizer, folder).spec
    return Process("rowmill", spec, folder, deadline=deadline)


def test_a_process_that_is_killed_is_told_with_its_code(
    tmp_path: Path, tokenizer: Path
) -> None:
    process = open_process(tmp_path, tokenizer, deadline=time.monotonic() + 60)
    assert isinstance(process.ready(), Ready)
    os.kill(process._process.pid, signal.SIGKILL)
    work = write_workload("short", tmp_path / "w", words=Words(tokenizer), seed=1, rows=40)

    found = process.run(Task(name="rowmill", work=work, out=str(tmp_path / "out")))

    process.end()
    assert isinstance(found, Failed)
    assert "ended with code -9" in found.reason


def test_what_a_dead_process_had_started_is_ended_with_it(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an engine goes on computing beside the contenders that come next."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexec >/dev/null\nsleep 600 &\necho $! >{tmp_path}/pid\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))

    process = open_process(tmp_path, tokenizer, deadline=time.monotonic() + 60)
    found = process.ready()

    pid = int((tmp_path / "pid").read_text())
    ends_at = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < ends_at:
        os.sched_yield()
    alive = is_alive(pid)
    process.end()
    assert isinstance(found, Failed)
    assert not alive


def test_waiting_ends_with_the_deadline(tmp_path: Path, tokenizer: Path) -> None:
    process = open_process(tmp_path, tokenizer, deadline=time.monotonic())

    with pytest.raises(OutOfTimeError):
        process.ready()

    process.end(at_once=True)
    assert not is_alive(process._process.pid)


def test_nothing_outlives_the_parent(tmp_path: Path, tokenizer: Path, python: str) -> None:
    spec = tmp_path / "spec.json"
    spec.write_bytes(msgspec.json.encode(plan_of(tokenizer, tmp_path).spec))
    child = subprocess.Popen(
        [python, "-m", "rowmill.bench.contender", "rowmill", str(spec)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    ready = json.loads(child.stdout.readline())
    below = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat")]
    engines = [pid for pid in below if parent_of(pid) == child.pid]

    child.stdin.close()

    assert ready["type"] == "Ready"
    assert child.wait(30) == -signal.SIGKILL
    assert engines
    end = time.monotonic() + 30
    while any(map(is_alive, engines)) and time.monotonic() < end:
        os.sched_yield()
    assert not any(map(is_alive, engines))
    child.stdout.close()


def parent_of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def test_flow_is_what_moves_say() -> None:
    moves = [(11.0, 4), (12.0, -2), (13.0, -2), (15.0, 2), (16.0, -2)]

    assert flow_of(moves, 10.0, 8.0) == {
        "first_row_s": 1.0,
        "engine_idle_s": 2.0,
        "mean_in_flight": 1.6,
        "after_last_answer_s": 2.0,
    }
    assert flow_of([], 10.0, 8.0) == {"first_row_s": 8.0, "engine_idle_s": 8.0}


@pytest.mark.vllm
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")
def test_all_contenders_answer_all_rows_with_vllm(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    pytest.importorskip("torch")
    from tests.engines.hf_folders import random_folder

    model = random_folder(tmp_path / "model")
    sets = ("enforce_eager=true", "dtype=bfloat16", "max_num_seqs=16", "max_model_len=512")
    asked = Asked(
        model=str(model),
        workload="system",
        rows=40,
        rounds=1,
        memory_share=0.15,
        profile=True,
        sets=(*sets, "max_num_batched_tokens=1024", "num_gpu_blocks_override=128"),
    )

    (found,) = measure_all(plans_of(asked, tmp_path), tmp_path, tell=lambda _: None)

    assert found.failed == {}
    assert {run.contender: run.invalid for run in found.runs} == dict.fromkeys(
        ("generate", "sorted", "five_line", "run_batch", "rowmill"), ""
    )
    assert found.work is not None
    assert {run.output_tokens for run in found.runs} == {found.work.output_tokens}
    # The shared beginning is in the cache for all but the first rows, and was not left there by another.
    assert all(0 < run.cached_tokens < 40 * 200 for run in found.runs)
    assert {one.about["seats"] for one in found.residents} == {16}
    assert {one.about["kv_tokens"] for one in found.residents} == {
        found.residents[0].about["kv_tokens"]
    }
