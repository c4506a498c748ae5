"""Case 45: of two starts on one output one works; a dead owner is followed at once."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest

from tests.cases.command import (
    INPUTS,
    OK,
    REFUSED,
    Arguments,
    check_whole,
    job,
    kill,
    paused,
    rowmill,
    start,
)
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "45"
SOURCE = CASE / "input.jsonl"
EXPECTED = read_records(CASE / "expected.jsonl")
LIMIT_S = 60


def test_a_second_start_is_refused_and_names_the_owner(tmp_path: Path, serve: Serve) -> None:
    endpoint, out = serve(delay_s=0.2), tmp_path / "out"
    arguments = job(SOURCE, out, endpoint=endpoint)
    first = start(arguments, tmp_path / "first")
    endpoint.wait_hits(1, first)

    with paused(first):
        second = rowmill("run", arguments, limit_s=LIMIT_S)

    assert second.code == REFUSED
    assert f"process {first.pid} on `{socket.gethostname()}`" in second.stderr
    assert first.poll() is None
    assert first.wait(LIMIT_S) == OK
    finished = rowmill("run", arguments)
    assert differences(EXPECTED, check_whole(finished, out, 150)) == []
    assert endpoint.hits == 150


def starts_at_once(folder: Path, arguments: Arguments) -> list[tuple[int, str]]:
    processes = [start(arguments, folder / f"words{i}") for i in range(2)]
    codes = [process.wait(LIMIT_S) for process in processes]
    return [(code, (folder / f"words{i}").read_text()) for i, code in enumerate(codes)]


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_of_two_starts_at_once_exactly_one_works(
    tmp_path: Path, serve: Serve, rounds: int
) -> None:
    for i in range(rounds):
        endpoint, folder = serve(delay_s=0.05, is_logged=False), tmp_path / str(i)
        folder.mkdir()
        arguments = job(SOURCE, folder / "out", endpoint=endpoint)

        ended = sorted(starts_at_once(folder, arguments))

        assert [code for code, _ in ended] == [OK, REFUSED], ended
        assert re.search(r"process \d+ on `", ended[1][1])
        assert differences(EXPECTED, records_of(folder / "out", arguments)) == []
        assert endpoint.hits == 150
        endpoint.close()


def records_of(out: Path, arguments: Arguments) -> list[dict[str, object]]:
    return check_whole(rowmill("run", arguments), out, 150)


@pytest.mark.parametrize(
    "note", ["as it was", "other host", pytest.param("living process", marks=pytest.mark.slow)]
)
def test_a_dead_owner_is_followed_at_once(tmp_path: Path, serve: Serve, note: str) -> None:
    endpoint, out = serve(delay_s=0.05), tmp_path / "out"
    arguments = job(SOURCE, out, endpoint=endpoint)
    process = start(arguments, tmp_path / "words")
    endpoint.wait_hits(50, process)
    kill(process)
    file = out / "leases/owner.lock"
    owner = json.loads(file.read_bytes())
    assert owner["members"][0]["pid"] == process.pid
    if note == "other host":
        owner["members"][0]["host"] = "elsewhere"
    if note == "living process":
        owner["members"][0]["pid"] = os.getpid()
    file.write_text(json.dumps(owner))

    finished = rowmill("run", arguments, limit_s=LIMIT_S)

    assert finished.code == OK, finished.stderr
    assert differences(EXPECTED, check_whole(finished, out, 150)) == []
