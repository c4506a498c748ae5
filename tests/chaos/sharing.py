"""Two workers on one output: either is killed, or sleeps until the other has taken its tasks over."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from tests.chaos.scene import Scene
from tests.chaos.schedule import Strike
from tests.kill import left
from tests.kill.left import Broken
from tests.kill.small_job import Worker

TAKEN_WITHIN_S = 20.0


def strike_pair(scene: Scene, strikes: Sequence[Strike]) -> None:
    """Run the job with two workers through its faults."""
    pair = Pair(scene)
    for strike in strikes:
        pair.strike(strike)
    pair.end()


class Pair:
    """Two workers of one run, kept two for as long as there is work."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        first = scene.job.start()
        if not scene.until(scene.has_begun, first):
            told = f"the run never said its token: {first.told()}"
            raise Broken(told)
        self._token = scene.token()
        self.workers = [first, self._start()]

    def strike(self, strike: Strike) -> None:
        """Strike the first worker (`parent ...`) or the one that joined (`joined ...`)."""
        number = int(strike.fault.startswith("joined"))
        victim, other = self._kept()[number], self.workers[1 - number]
        is_at_work = self._scene.until(lambda: bool(self._tasks_of(victim)), victim)
        is_due = is_at_work and self._scene.wait(strike.moment, victim)
        if not is_due or not other.is_running:
            self._scene.saw(strike.fault, was_seen=False)
        elif strike.fault.endswith("killed"):
            self._kill(strike, victim)
        else:
            self._sleep(strike, victim, other)

    def end(self) -> None:
        """Let both come to their end. Seen: each committed a task, at any time."""
        for worker in self.workers:
            if worker.process.poll() != -signal.SIGKILL:
                left.check_ended(self._scene.job, worker)
        names = self._scene.commits()
        self._scene.saw("two workers", was_seen=len(set(names)) >= len(self.workers))

    def _kept(self) -> list[Worker]:
        """Both workers; who was killed is followed by another while there is work."""
        for number, worker in enumerate(self.workers):
            if worker.process.poll() == -signal.SIGKILL and not self._scene.is_done:
                self.workers[number] = self._start()
        return self.workers

    def _start(self) -> Worker:
        return self._scene.job.start(join=self._token)

    def _kill(self, strike: Strike, victim: Worker) -> None:
        """Seen: it died of it, held a task, and that task is held or committed by another in the end."""
        held = self._tasks_of(victim)
        victim.signal(signal.SIGKILL)
        is_mid_work = victim.process.wait() == -signal.SIGKILL and not self._scene.is_done
        self._scene.note_death()
        self._scene.saw(strike.fault, was_seen=is_mid_work and bool(held))

    def _sleep(self, strike: Strike, victim: Worker, other: Worker) -> None:
        """Seen: while it slept, a task that it held went to another under a larger epoch."""
        scene = self._scene
        victim.signal(signal.SIGSTOP)
        held = self._tasks_of(victim)
        scene.has_slept = True
        scene.toll.taken_rows += len(held) * int(scene.job.settings["run.task_rows"])

        def taken() -> bool:
            leases = scene.leases()
            return any(leases[task][0] > epoch for task, epoch in held.items())

        was_taken = bool(held) and scene.until(taken, other, limit_s=TAKEN_WITHIN_S)
        if was_taken:
            # Woken while the other is at what was taken, or about to commit it, or after.
            scene.wait(strike.moment, other)
        victim.signal(signal.SIGCONT)
        scene.saw(strike.fault, was_seen=was_taken)

    def _tasks_of(self, worker: Worker) -> dict[int, int]:
        """Tasks that a worker holds, and under which epoch."""
        leases = self._scene.leases().items()
        return {task: epoch for task, (epoch, who) in leases if who.endswith(f"-{worker.pid}")}
