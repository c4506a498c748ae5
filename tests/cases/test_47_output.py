"""Case 47: an output that cannot be written, or is the input, is refused before anything is asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases.command import (
    DIED,
    INPUTS,
    OK,
    Finished,
    check_refused,
    check_whole,
    job,
    kill,
    rowmill,
    snapshot,
    start,
)
from tests.cases.endpoint import Serve
from tests.cases.small_disk import remount, small_disk

INPUT = (INPUTS / "47" / "input.jsonl").read_bytes()
PASSES = "-dac_override,-dac_read_search"
WITHOUT_PASSES = ["setpriv", f"--bounding-set={PASSES}", f"--inh-caps={PASSES}"]
HELD_TO_MODES = WITHOUT_PASSES if os.geteuid() == 0 else []
"""What makes root obey a folder's mode, as other users do; nothing else of it is taken."""
LIMIT_S = 30


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with the input in it."""
    (tmp_path / "input.jsonl").write_bytes(INPUT)
    return tmp_path


def linked(work: Path) -> str:
    (work / "link").symlink_to(work / "input.jsonl")
    return "link"


def hard_linked(work: Path) -> str:
    os.link(work / "input.jsonl", work / "hard")
    return "hard"


def roundabout(work: Path) -> str:
    (work / "sub").mkdir()
    return "./sub/../input.jsonl"


def in_use(work: Path) -> str:
    (work / "papers").mkdir()
    (work / "papers" / "letter.txt").write_text("dear")
    return "papers"


TARGETS: dict[str, tuple[Callable[[Path], str], str]] = {
    "input itself": (lambda _: "input.jsonl", "is a file"),
    "another path to it": (roundabout, "is a file"),
    "symbolic link to it": (linked, "is a file"),
    "hard link to it": (hard_linked, "is a file"),
    "below it": (lambda _: "input.jsonl/out", "Not a directory"),
    "long name": (lambda _: "n" * 300, "File name too long"),
    "device": (lambda _: "/dev/full", "is a file"),
    "in use": (in_use, "holds other files"),
    "store of a later version": (lambda _: "s3://no-such-bucket/x", "s3"),
    "unknown scheme": (lambda _: "gopher://host/x", "gopher"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_target_is_refused_and_nothing_is_touched(
    work: Path, serve: Serve, target: str
) -> None:
    make, reason = TARGETS[target]
    endpoint, out = serve(), make(work)
    before = snapshot(work)
    arguments = job(work / "input.jsonl", Path(out), endpoint=endpoint)
    arguments[arguments.index("-o") + 1] = out

    finished = rowmill("run", arguments, cwd=work, limit_s=LIMIT_S)

    words = check_refused(finished, endpoint=endpoint)
    assert reason in words
    assert out.removeprefix("./")[:40] in words
    assert snapshot(work) == before


@pytest.mark.parametrize("out", ["in", "in/out", "."])
def test_the_folder_of_the_input_is_refused(work: Path, serve: Serve, out: str) -> None:
    endpoint = serve()
    (work / "in").mkdir()
    (work / "input.jsonl").rename(work / "in/input.jsonl")
    before = snapshot(work)

    finished = rowmill("run", job(Path("in"), Path(out), endpoint=endpoint), cwd=work)

    assert f"`{out}`" in check_refused(finished, endpoint=endpoint)
    assert snapshot(work) == before


@pytest.mark.parametrize("target", ["input itself", "below it", "in use"])
def test_target_is_refused_before_an_in_process_engine_opens(work: Path, target: str) -> None:
    out = TARGETS[target][0](work)
    before = snapshot(work)
    log = work / "started"
    arguments = job(work / "input.jsonl", Path(out), sets={"engine.log": str(log)})

    check_refused(rowmill("run", arguments, cwd=work))

    assert snapshot(work) == before


def test_a_folder_that_may_not_be_written_is_refused(work: Path, serve: Serve) -> None:
    endpoint = serve()
    (work / "ro_dir").mkdir(mode=0o555)
    before = snapshot(work)
    arguments = job(work / "input.jsonl", work / "ro_dir/out", endpoint=endpoint)

    finished = rowmill("run", arguments, before=HELD_TO_MODES)

    words = check_refused(finished, endpoint=endpoint)
    assert "ro_dir/out" in words
    assert "Permission denied" in words
    assert snapshot(work) == before


def test_a_read_only_mount_is_refused(work: Path, serve: Serve) -> None:
    endpoint = serve()
    with small_disk(work / "mount", size="1m") as disk:
        remount(disk, "ro")
        arguments = job(work / "input.jsonl", disk / "out", endpoint=endpoint)

        words = check_refused(rowmill("run", arguments), endpoint=endpoint)

        assert "mount/out" in words
        assert "Read-only file system" in words
        assert list(disk.iterdir()) == []


def test_an_output_that_turns_read_only_stops_the_run_and_resumes(
    work: Path, serve: Serve
) -> None:
    endpoint, out = serve(delay_s=0.3), work / "out"
    out.mkdir()
    rows = "".join(f'{{"id": {i}, "prompt": "u {i}"}}\n' for i in range(60))
    (work / "input.jsonl").write_text(rows)
    arguments = job(work / "input.jsonl", out, endpoint=endpoint)
    process = start(arguments, work / "words", before=HELD_TO_MODES)
    try:
        endpoint.wait_hits(20, process)
        set_modes(out, 0o555)
        code = process.wait(LIMIT_S)
    finally:
        kill(process)

    words = (work / "words").read_text()
    check_stopped(Finished(code, "", words), out)
    set_modes(out, 0o755)
    finished = rowmill("run", arguments, before=HELD_TO_MODES)
    check_whole(finished, out, 60)
    assert finished.code == OK


def set_modes(out: Path, mode: int) -> None:
    for path in [out, *(p for p in out.rglob("*") if p.is_dir())]:
        path.chmod(mode)


def check_stopped(finished: Finished, out: Path) -> None:
    assert finished.code == DIED, finished.stderr
    assert str(out) in finished.stderr
    assert "Permission denied" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert len(finished.stderr.splitlines()) <= 20
    assert not (out / "done.json").exists()
