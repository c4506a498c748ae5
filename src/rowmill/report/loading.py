"""Output -> a vector store: what the run holds and the store does not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import msgspec

from rowmill.job_file import load_job
from rowmill.load.loader import Loader, Total
from rowmill.load.targets import check_job
from rowmill.report.run import open_view, run_of

TELL_S = 5.0


class LoadedRun(msgspec.Struct, frozen=True):
    """What a store holds of a run."""

    total: Total
    tasks_left: int
    """Tasks that are not committed yet."""


def load_run(
    output: str, to: str, *, sets: Sequence[str] = (), tell: Callable[[str], None]
) -> LoadedRun:
    """Load every committed vector that the store has not got; the index once the run is whole.

    Args:
        sets: settings of `[sink]` that differ from the run's own, as `--set` takes them.
        tell: told how far it is.

    Raises:
        ConfigError: there is no run, it makes no vectors, its input is another, or the store cannot be what is asked.
        SinkFailed: the store took not all.
    """
    view = open_view(output)
    place = run_of(output)
    settings = {**view.record.job, "output.path": place, "sink.to": to}
    job = load_job(None, settings=settings, sets=sets)
    check_job(job)
    view.check_input()
    run = (view.record, view.cut)
    told_at = time.monotonic()
    loader = Loader(view.storage, run, job, tell=tell, sets=sets)
    with contextlib.closing(loader):
        loader.examine()
        loader.check()
        while names := loader.pending():
            for number, name in enumerate(names, start=1):
                loader.load(name)
                if time.monotonic() - told_at >= TELL_S:
                    told_at = time.monotonic()
                    tell(f"{number:,} of {len(names):,} tasks loaded")
        left = view.cut.num_tasks - len(view.commits)
        total = loader.finish() if not left else loader.total()
    return LoadedRun(total, left)
