"""A file of rows -> a run of rowmill, published, on engines that stay open.

Promises: the whole journey is timed: input counted, run made, rows read to results published, all on the disk.
Knows nothing of: how others do it.
Memory: rowmill's own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rowmill.bench.answers import as_asked, as_echoed, checked, rowmill_answers
from rowmill.bench.records import Run, Spec, Task
from rowmill.bench.watch import Watch, WatchedFleet
from rowmill.config import EngineConfig, Job
from rowmill.executors.local import run
from rowmill.rehearse import check

OWN_NAMES = {"max_num_seqs": "seats"}
"""Engine arguments of vLLM that rowmill calls otherwise."""


class Ours:
    """Rowmill with its engines open."""

    def __init__(self, spec: Spec) -> None:
        self._engine = engine_of(spec)
        self._expected = as_echoed if spec.engine == "echo" else as_asked
        self._is_profiled = spec.is_profiled
        self._fleet = WatchedFleet(self._engine, log=Path(spec.folder) / "rowmill-engine.log")
        limits, placement = self._fleet.start(), self._fleet.placement
        self.about = {
            "engine": limits.about,
            "replicas": len(placement.replicas),
            "reason": placement.reason,
            "seats": limits.seats,
            "kv_tokens": limits.kv_tokens,
        }

    def run(self, task: Task) -> Run:
        """See `contenders.Contender`."""
        assert task.work is not None
        job = Job.model_validate(
            {
                "source": task.work.path,
                "output": task.out,
                "engine": self._engine.model_dump(),
                "raw": True,
                "sampling": {"temperature": 0},
            }
        )
        self._fleet.forget()
        watch = Watch(self._fleet) if self._is_profiled else None
        began = time.perf_counter()
        if watch is not None:
            with watch:
                summary = run(job, warm=self._fleet)
        else:
            summary = run(job, warm=self._fleet)
        seconds = time.perf_counter() - began
        answers = rowmill_answers(Path(task.out) / name for name in summary.results)
        found = checked(task.work, answers, seconds, expected=self._expected)
        profile = watch.found(seconds) if watch is not None else None
        if profile is not None:
            profile |= forecast_of(job, found)
        return Run(**{**fields(found), "profile": profile})

    def close(self) -> None:
        """See `contenders.Contender`."""
        self._fleet.shut()


def forecast_of(job: Job, run_: Run) -> dict[str, Any]:
    """What `check` says of the same file, beside what it took; nothing where it says nothing."""
    said = check(job.model_copy(update={"output": job.output.model_copy(update={"path": ""})}))
    if len(said.forecasts) != 1 or not run_.prompt_tokens:
        return {}
    (one,) = said.forecasts
    return {
        "forecast": {
            "seconds": round(one.seconds, 3),
            "over_measured": round(one.seconds / run_.seconds, 3),
            "hit_rate": round(one.hit_rate, 4),
            "measured_hit_rate": round(run_.cached_tokens / run_.prompt_tokens, 4),
            "most_hit_rate": round(one.bounds.hit_rate, 4),
        }
    }


def engine_of(spec: Spec) -> EngineConfig:
    """`[engine]` of the job: the settings of all under rowmill's names, everything else derived."""
    settings = {OWN_NAMES.get(name, name): value for name, value in spec.settings.items()}
    own: dict[str, Any] = {"name": spec.engine, **settings}
    if spec.engine == "echo":
        own = {"answer": "numbers", "tokenizer": spec.tokenizer, **own}
    else:
        own = {"model": spec.model, **own}
        if Path(spec.tokenizer) != Path(spec.model):
            own["tokenizer"] = spec.tokenizer
    return EngineConfig.model_validate(own)


def fields(run_: Run) -> Mapping[str, Any]:
    """A run's fields, by name."""
    return {name: getattr(run_, name) for name in run_.__struct_fields__}
