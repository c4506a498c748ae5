"""Fault -> what is done, and when its effect counts as seen.

A fault that comes too late, or whose effect cannot be shown, is counted as unseen.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import time
from pathlib import Path

from tests.chaos.scene import ALL_OK, SOME_FAILED, Scene, comes_true
from tests.chaos.schedule import Fault, Strike
from tests.kill import left
from tests.kill.left import Broken
from tests.kill.small_job import Worker

NOTHING_LEFT = "done before, nothing to ask"
"""Words of a start that found the run whole."""

REFUSED, DIED = 2, 3
GONE_WITHIN_S, STOPPED_WITHIN_S = 10.0, 1.0
FILE_LIMIT_BYTES = 8192
"""More than the words of a worker, less than a segment or a part."""
FILLER = ".filler"


def parent_killed(scene: Scene, strike: Strike, *, tear: bool = False) -> None:
    """SIGKILL to the parent. Seen: it died of it, with work left to do."""
    worker = awaited(scene, strike)
    if worker is None:
        return
    worker.signal(signal.SIGKILL)
    _dead(scene, strike, worker, tear=tear)


def torn_tail(scene: Scene, strike: Strike) -> None:
    """The parent is killed, and open segments end as after a loss of power. Seen: bytes of one are others than before."""
    parent_killed(scene, strike, tear=True)


def both_killed(scene: Scene, strike: Strike) -> None:
    """SIGKILL to parent and engine. Seen: both lived, and are dead, with work left to do."""
    worker = awaited(scene, strike)
    if worker is None:
        return
    engines = scene.engines()
    victims = [worker.pid, *engines]
    random.Random(strike.draw).shuffle(victims)
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _dead(scene, strike, worker, also=engines)


def engine_killed(scene: Scene, strike: Strike) -> None:
    """SIGKILL to the engine, of several to one or to all. Seen: it died, and the same parent started another to go on."""
    worker = awaited(scene, strike)
    engines = scene.engines() if worker else []
    if worker is None or not engines:
        scene.saw(strike.fault, was_seen=False)
        return
    for pid in engines if strike.draw % 2 else engines[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    scene.note_death(of_engine=True)
    restarted = scene.until(lambda: bool(set(scene.engines()) - set(engines)), worker)
    scene.saw(strike.fault, was_seen=restarted)


def engine_stopped(scene: Scene, strike: Strike) -> None:
    """SIGSTOP to the engine for a while. Seen: it was in state T, started no row in that time, and started some after."""
    worker = awaited(scene, strike)
    engines = scene.engines() if worker else []
    if worker is None or not engines:
        scene.saw(strike.fault, was_seen=False)
        return
    for pid in engines:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    stood = comes_true(lambda: all(_state(pid) == "T" for pid in engines), STOPPED_WITHIN_S)
    before = scene.started.total()
    time.sleep(strike.hold_s)
    stood = stood and scene.started.total() == before and worker.is_running
    for pid in engines:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    went_on = scene.until(lambda: scene.started.total() > before, worker)
    scene.saw(strike.fault, was_seen=stood and went_on)


def engine_frozen(scene: Scene, strike: Strike) -> None:
    """SIGSTOP to the engine, for good. Seen: the same parent ended it, and started another to go on."""
    worker = awaited(scene, strike)
    engines = scene.engines() if worker else []
    if worker is None or not engines:
        scene.saw(strike.fault, was_seen=False)
        return
    for pid in engines:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    scene.note_death(of_engine=True)
    restarted = scene.until(lambda: bool(set(scene.engines()) - set(engines)), worker)
    gone = all(_state(pid) in "ZX" for pid in engines)
    scene.saw(strike.fault, was_seen=restarted and gone)


def second_start(scene: Scene, strike: Strike) -> None:
    """The same command again, beside the first. Seen: one is refused and names the other, who works on."""
    worker = awaited(scene, strike)
    if worker is None:
        return
    second = scene.job.start()
    code = second.code()
    was_refused = code == REFUSED and _names(second, worker)
    if not was_refused and worker.process.poll() == REFUSED and _names(worker, second):
        # A start takes a while until it owns the output: the second one was quicker.
        scene.excuse(worker)
        scene.follow(second)
        was_refused = True
    # The run was whole, and the first one had not gone home yet.
    is_over = code == ALL_OK and NOTHING_LEFT in second.told()
    if worker.is_running and not (was_refused or is_over):
        told = f"a second start was not refused: exit code {code}: {second.told()}"
        raise Broken(told)
    scene.saw(strike.fault, was_seen=was_refused)


def _names(refused: Worker, owner: Worker) -> bool:
    return f"process {owner.pid} on" in refused.told()


def file_size_limit(scene: Scene, strike: Strike) -> None:
    """No file may grow further, as with a quota. Seen: the worker died with the system's words."""
    worker = awaited(scene, strike)
    if worker is None:
        return
    with contextlib.suppress(ProcessLookupError):
        _, hard = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, hard))
    died_in_words(scene, strike, worker, "File too large")


def disk_full(scene: Scene, strike: Strike) -> None:
    """The disk under the output is filled. Seen: the worker died with the system's words; the disk gets room again."""
    worker = awaited(scene, strike)
    if worker is None:
        return
    filler = scene.job.out / FILLER
    _fill(filler)
    try:
        died_in_words(scene, strike, worker, "No space left on device")
    finally:
        filler.unlink()


def awaited(scene: Scene, strike: Strike) -> Worker | None:
    """The worker that goes on, at the moment of the strike; None, and counted as unseen, where it came to its end."""
    worker = scene.lead()
    if worker is not None and scene.wait(strike.moment, worker):
        return worker
    scene.saw(strike.fault, was_seen=False)
    return None


def _dead(
    scene: Scene,
    strike: Strike,
    worker: Worker,
    *,
    also: list[int] | None = None,
    tear: bool = False,
) -> None:
    code = worker.process.wait()
    is_mid_work = code == -signal.SIGKILL and not scene.is_done
    fault: Fault = (
        "parent killed" if strike.fault == "both killed" and not also else strike.fault
    )
    if also:
        is_mid_work &= comes_true(lambda: all(_state(p) in "ZX" for p in also), GONE_WITHIN_S)
    torn_rows: set[int] = set()
    if tear:
        before, contents = left.rows_on_disk(scene.job.out), _contents(scene)
        left.tear(random.Random(strike.draw), scene.job.out)
        torn_rows = before - left.rows_on_disk(scene.job.out)
        scene.saw("parent killed", was_seen=is_mid_work)
        is_mid_work = is_mid_work and _contents(scene) != contents
    scene.note_death(torn_rows=torn_rows)
    scene.saw(fault, was_seen=is_mid_work)


def died_in_words(scene: Scene, strike: Strike, worker: Worker, words: str) -> None:
    """See a worker die of an error of its storage, told in words, or end well before that came."""
    code = worker.code()
    # Refused: that early in a start.
    was_seen = code in {DIED, REFUSED} and words in worker.told()
    if not was_seen and code not in {ALL_OK, SOME_FAILED}:
        told = f"{strike.fault}: exit code {code}: {worker.told()}"
        raise Broken(told)
    if was_seen:
        scene.excuse(worker)
        scene.note_death()
    scene.saw(strike.fault, was_seen=was_seen)


def _fill(filler: Path) -> None:
    """Write until nothing more fits, byte by byte at the end."""
    with filler.open("ab", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def _contents(scene: Scene) -> list[bytes]:
    return [file.read_bytes() for file in left.open_segments(scene.job.out)]


def _state(pid: int) -> str:
    """The letter that the system has for it; X where it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return "X"
    return stat.rpartition(")")[2].split()[0]
