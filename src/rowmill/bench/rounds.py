"""What is to be compared -> runs: contenders in turn, the same file for all of a round, until the rounds or the time are over.

Promises: the order rotates with the round; each round has a seed of its own; whatever ends it early, what was measured
is returned, and no process is left.
Knows nothing of: tables, how a contender works.
Memory: the runs; files of one round on the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rowmill.bench.contenders import grouped
from rowmill.bench.records import Failed, Measured, Resident, Run, Spec, Task, Work
from rowmill.bench.residents import OutOfTimeError, Process
from rowmill.bench.words import Words
from rowmill.bench.workloads import write_workload
from rowmill.size import find_gpus

WARM_SHARE, WARM_LEAST, WARM_MOST = 20, 32, 512
WARM_SEED = 2**31
"""Added to the seed of the warm-up: no text of it comes again."""
EQUAL = {"seats": "max_num_seqs", "step_tokens": "max_num_batched_tokens"}
"""What an engine took -> the argument that makes another take the same."""
AT_ONCE = {"kv_cache_memory_bytes", *EQUAL.values()}
"""Settings without which engines cannot start at the same time, or would not be equal."""
_NO_DEADLINE_S = 10 * 365 * 86400.0

Tell = Callable[[str], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be compared."""

    title: str
    workload: str
    rows: int
    contenders: tuple[str, ...]
    spec: Spec
    rounds: int = 3
    seed: int = 1
    slow: tuple[str, ...] = ()
    """Contenders that take part in the first `slow_rounds` alone."""
    slow_rounds: int = 1
    is_equal: bool = True
    """Whether `run_batch` is to have the seats and step tokens that `vllm.LLM` takes by itself, where none are set."""
    context: int = 0
    """Tokens of prompt and answer that the model takes; 0: as many as there are."""

    def has_engines_of(self, other: Plan) -> bool:
        """Whether the engines of this plan serve another as they are."""
        mine = (self.spec, self.contenders, self.is_equal)
        return mine == (other.spec, other.contenders, other.is_equal)


def turns(plan: Plan) -> Iterator[tuple[int, list[str]]]:
    """(round from 1, contenders in the order of their turns).

    Slow ones come last: where the time ends early, what is measured in every round has its numbers.
    """
    usual = [name for name in plan.contenders if name not in plan.slow]
    slow = [name for name in plan.contenders if name in plan.slow]
    for number in range(plan.rounds):
        first = number % len(usual) if usual else 0
        last = slow if number < plan.slow_rounds else []
        yield number + 1, [*usual[first:], *usual[:first], *last]


def measure_all(
    plans: Sequence[Plan],
    folder: Path,
    *,
    tell: Tell,
    max_seconds: float | None = None,
    keep: Callable[[list[Measured]], None] = lambda _: None,
) -> list[Measured]:
    """Run the rounds of one plan after the other.

    Args:
        folder: for files, logs and outputs.
        keep: given what there is after each round, for a place that outlives us.
        max_seconds: for all plans together; what there is then is returned. A plan that was not begun is left out.
        tell: told in words how far it is.

    Raises:
        ConfigError: the tokenizer or the model do not allow the workload.
    """
    limit = max_seconds if max_seconds is not None else _NO_DEADLINE_S
    deadline = time.monotonic() + limit
    done: list[Measured] = []
    before: Rounds | None = None
    for number, plan in enumerate(plans):
        if time.monotonic() >= deadline:
            break
        tell(plan.title)
        words = Words(plan.spec.tokenizer)
        rounds = Rounds(plan, folder, words, tell, deadline=deadline, before=before)
        stays = number + 1 < len(plans) and plan.has_engines_of(plans[number + 1])
        done.append(_measure(rounds, lambda some: keep([*done, some]), stays=stays))
        before = rounds if stays and not rounds.stopped else None
        keep(done)
    if before is not None:
        before.close()
    return done


def _measure(rounds: Rounds, keep: Callable[[Measured], None], *, stays: bool) -> Measured:
    """Run a plan; the engines stay open where the next plan needs the same."""
    try:
        rounds.open_all()
        rounds.warm()
        for number, names in turns(rounds.plan):
            rounds.round(number, names)
            keep(rounds.found())
    except OutOfTimeError:
        rounds.stopped = "the time was over"
    except BaseException:
        rounds.stopped = "interrupted"  # so that nobody waits for engines to close
        raise
    finally:
        if rounds.stopped or not stays:
            rounds.close()
    return rounds.found()


class Rounds:
    """Rounds in progress."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        words: Words,
        tell: Tell,
        *,
        deadline: float,
        before: Rounds | None = None,
    ) -> None:
        """Rounds of a plan; `before`: others that are done, whose engines are the same and open."""
        self.plan = plan
        self._folder, self._words, self._tell = folder, words, tell
        self._deadline = deadline
        self.process_of: dict[str, Process] = {}
        """Contender -> its process."""
        self.residents: list[Resident] = []
        self._runs: list[Run] = []
        self.failed: dict[str, str] = {}
        self._seeds: list[int] = []
        self._work: Work | None = None
        self._longest: dict[str, float] = {}
        self.stopped = ""
        """Why it ended early."""
        if before is not None:
            self.process_of, self.residents = before.process_of, before.residents
            self.failed = before.failed

    def found(self) -> Measured:
        """What there is so far."""
        return Measured(
            title=self.plan.title,
            workload=self.plan.workload,
            work=self._work,
            seeds=list(self._seeds),
            settings=self.plan.spec.settings,
            residents=list(self.residents),
            runs=list(self._runs),
            stopped=self.stopped,
            failed=dict(self.failed),
        )

    def open_all(self) -> None:
        """Open the engines that are not open.

        One after the other, as each looks at the GPU's memory while it starts; at once where they are told their KV
        cache and all that makes them equal.

        Raises:
            OutOfTimeError: no time is left.
        """
        at_once = self.plan.spec.settings.keys() >= AT_ONCE
        groups = grouped(self.plan.contenders)
        opening: dict[str, Process] = {}
        for resident in self._not_open(groups):
            names = groups[resident]
            if at_once and self.process_of and not opening:
                # The first one alone compiled what all need.
                opening = {name: self._process(name) for name in self._not_open(groups)}
            before, began = used_bytes(), time.monotonic()
            process = opening.get(resident) or self._process(resident)
            self.process_of |= dict.fromkeys(names, process)
            ready = process.ready()
            seconds = time.monotonic() - began
            if isinstance(ready, Failed):
                self._drop(names, f"not opened: {ready.reason}")
                continue
            self.residents.append(
                Resident(
                    contenders=tuple(names),
                    start_s=round(seconds, 2),
                    gpu_bytes=max(0, used_bytes() - before),
                    about=ready.about,
                )
            )
            self._tell(f"{', '.join(names)}: open after {seconds:.1f} s")

    def _not_open(self, groups: dict[str, list[str]]) -> list[str]:
        """Processes of contenders that are not there yet."""
        return [
            resident
            for resident, names in groups.items()
            if not any(name in self.process_of or name in self.failed for name in names)
        ]

    def _process(self, resident: str) -> Process:
        return Process(resident, self._spec_of(resident), self._folder, deadline=self._deadline)

    def warm(self) -> None:
        """A small file for each, of the same workload.

        Raises:
            OutOfTimeError: no time is left.
        """
        rows = min(max(self.plan.rows // WARM_SHARE, WARM_LEAST), WARM_MOST, self.plan.rows)
        work = self._written("warm", self.plan.seed + WARM_SEED, rows)
        for name in list(self.process_of):
            self._one(name, work, 0)

    def round(self, number: int, names: list[str]) -> None:
        """One file for all.

        Raises:
            OutOfTimeError: no time is left, or too little for the next contender.
        """
        if not self.process_of:
            return
        seed = self.plan.seed + number - 1
        work = self._written(f"round-{number}", seed, self.plan.rows)
        self._seeds.append(seed)
        self._work = self._work or work
        for name in names:
            if name in self.process_of:
                if time.monotonic() + self._longest.get(name, 0.0) > self._deadline:
                    raise OutOfTimeError
                self._one(name, work, number)
        Path(work.path).unlink()

    def close(self) -> None:
        """End all; at once, where it was ended early."""
        for process in set(self.process_of.values()):
            process.end(at_once=bool(self.stopped))
        self.process_of.clear()

    def _spec_of(self, resident: str) -> Spec:
        spec = self.plan.spec
        if resident != "batch" or not self.plan.is_equal:
            return spec
        taken = next((one.about for one in self.residents if "seats" in one.about), {})
        filled = {EQUAL[key]: taken[key] for key in EQUAL if taken.get(key)}
        return msgspec.structs.replace(spec, settings={**filled, **spec.settings})

    def _one(self, name: str, work: Work, number: int) -> None:
        out = self._folder / f"out-{name}-{number}"
        found = self.process_of[name].run(Task(name=name, work=work, out=str(out)))
        where = f"round {number}" if number else "warm-up"
        if isinstance(found, Failed):
            self._tell(f"{where}: {name}: failed: {found.reason}")
            self._drop([name], f"{where}: {found.reason}")
            return
        if number:
            self._longest[name] = max(self._longest.get(name, 0.0), found.seconds)
            self._runs.append(msgspec.structs.replace(found, contender=name, round=number))
        invalid = f": INVALID: {found.invalid}" if found.invalid else ""
        self._tell(f"{where}: {name}: {found.seconds:.2f} s{invalid}")

    def _drop(self, names: list[str], reason: str) -> None:
        """Go on without a contender; its process ends with the last of those that live in it."""
        for name in names:
            self.failed[name] = reason
            process = self.process_of.pop(name)
            if process not in self.process_of.values():
                process.end(at_once=True)

    def _written(self, name: str, seed: int, rows: int) -> Work:
        plan, path = self.plan, self._folder / f"{name}.jsonl"
        return write_workload(
            plan.workload, path, words=self._words, seed=seed, rows=rows, context=plan.context
        )


def used_bytes() -> int:
    """Memory taken on the GPUs that this process may use."""
    return sum(gpu.used_bytes for gpu in find_gpus())


def described(measured: Measured) -> dict[str, Any]:
    """As plain values, for JSON."""
    found: dict[str, Any] = msgspec.to_builtins(measured)
    for run in found["runs"]:
        run.pop("type", None)
    return found
