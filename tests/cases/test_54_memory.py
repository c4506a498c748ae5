"""Case 54: memory is bounded by windows, answers are on the disk as they come, an interrupt loses none."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cases.command import (
    OK,
    check_refused,
    check_whole,
    exported,
    job,
    rowmill,
    run,
    start,
)
from tests.cases.endpoint import Endpoint, Serve, wait_until
from tests.cases.memory import MIB, MemoryWatch

LIMIT_S = 280


def write_batch_lines(file: Path, rows: int, *, padding: int = 60) -> Path:
    """Batch lines of about 650 bytes, as the case's own."""
    with file.open("w") as lines:
        for i in range(rows):
            body = {"model": "tiny", "prompt": f"item {i} " + "padding " * padding}
            row = {"custom_id": f"c{i:06d}", "method": "POST", "url": "/v1/completions"}
            lines.write(json.dumps({**row, "body": body}) + "\n")
    return file


def peak_and_growth(source: Path, out: Path, rows: int) -> tuple[int, int]:
    """Most bytes held over a run, and how much of it came after the run's first third."""
    sets = {"engine.tokenizer": "bytes", "engine.model": "tiny", "sampling.max_tokens": 16}
    # About 20,000 rows a second: in the first third the processes have started and the buffers are full.
    sets |= {"engine.seats": 2000, "engine.delay_s": 0.1}
    process = start(job(source, out, sets=sets), out.with_suffix(".words"))
    watch = MemoryWatch(process.pid)
    try:
        code = process.wait(LIMIT_S)
    finally:
        peak = watch.close()
        process.kill()
    assert code == OK, out.with_suffix(".words").read_text()
    assert json.loads((out / "done.json").read_bytes())["counts"]["ok"] == rows
    early = max(watch.seen[: max(1, len(watch.seen) // 3)])
    return peak, peak - early


@pytest.mark.parametrize(
    "rows",
    [20_000, pytest.param(200_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])],
)
def test_memory_stays_bounded(tmp_path: Path, rows: int) -> None:
    source = write_batch_lines(tmp_path / "input.jsonl", rows)

    peak, growth = peak_and_growth(source, tmp_path / "out", rows)

    assert peak < 600 * MIB
    if rows == 200_000:
        assert growth < 100 * MIB


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_stays_bounded_over_http(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve(is_logged=False)
    source = write_batch_lines(tmp_path / "input.jsonl", 200_000)
    sets = {"engine.seats": 64}
    process = start(
        job(source, tmp_path / "out", endpoint=endpoint, sets=sets), tmp_path / "words"
    )
    watch = MemoryWatch(process.pid)
    try:
        wait_for(endpoint, 10_000)
        early = max(watch.seen)
        wait_for(endpoint, 60_000)
    finally:
        peak = watch.close()
        process.send_signal(signal.SIGINT)
        code = process.wait(60)

    assert code == 130
    assert peak < 600 * MIB
    assert peak - early < 100 * MIB


def wait_for(endpoint: Endpoint, hits: int) -> None:
    wait_until(lambda: endpoint.hits >= hits, f"{hits} requests", patience_s=LIMIT_S)


@pytest.mark.slow
def test_an_interrupted_run_keeps_its_answers_and_asks_the_others_alone(
    tmp_path: Path, serve: Serve
) -> None:
    endpoint, out = serve(delay_s=0.02, is_logged=False), tmp_path / "out"
    source = write_batch_lines(tmp_path / "input.jsonl", 1500)
    arguments = job(source, out, endpoint=endpoint)
    process = start(arguments, tmp_path / "words")
    endpoint.wait_hits(300, process)
    wait_until(lambda: any(out.glob("segments/*/*.jsonl")), "answers on the disk")
    process.send_signal(signal.SIGINT)

    code = process.wait(30)

    assert code == 130, (tmp_path / "words").read_text()
    hits, answered = endpoint.hits, endpoint.stats["status"]["200"]
    kept = len(exported(out, tmp_path / "export.jsonl"))
    assert 300 <= hits < 1500
    assert kept >= 0.9 * answered
    finished = rowmill("run", arguments)
    check_whole(finished, out, 1500)
    assert endpoint.hits == hits + 1500 - kept


@pytest.mark.parametrize("rows", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_repeated_ids_are_found_far_apart(tmp_path: Path, rows: int) -> None:
    source = write_batch_lines(tmp_path / "input.jsonl", rows - 1, padding=1)
    with source.open("a") as lines:
        row = {"custom_id": "c000000", "method": "POST", "url": "/v1/completions"}
        lines.write(json.dumps({**row, "body": {"prompt": "again"}}) + "\n")

    words = check_refused(run(source, tmp_path / "out", sets={"engine.tokenizer": "bytes"}))

    assert f'"c000000" at input.jsonl:1, input.jsonl:{rows}' in words
