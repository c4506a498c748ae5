"""A job -> its engine tuned: rows sampled, settings tried, the best one told, rows of trials kept.

Promises: what is refused changes nothing; a stop at any moment leaves a run that goes on; engines are ended.
Knows nothing of: job files, terminals.
"""

from __future__ import annotations

from rowmill.config import Job
from rowmill.errors import ConfigError
from rowmill.events import Listener
from rowmill.executors.opening import Opened, new_token, open_run, stations_of
from rowmill.executors.placing import check_places
from rowmill.executors.slots import pod_name
from rowmill.executors.stopping import Stop, StoppedNow
from rowmill.executors.traces import Traces, tidy
from rowmill.forecast.gathered import Gathered
from rowmill.leases import Leases, claim_output
from rowmill.pipeline import TaskRows
from rowmill.shown.spans import duration
from rowmill.storage import open_storage
from rowmill.tune.moves import check_also, levels_of, moves_of
from rowmill.tune.report import Tuned
from rowmill.tune.search import Tried
from rowmill.tune.stand import Ask, Stand

__all__ = ["Ask", "dry_run", "tune"]


def tune(job: Job, ask: Ask, *, listen: Listener | None = None) -> Tuned:
    """Find the engine settings that do a job soonest.

    Raises:
        ConfigError: the job is refused, and nothing was done.
        EngineDied: the engine cannot be started with the job's own settings.
    """
    storage = open_storage(job.output.path)
    check_places(job, storage)
    traces = Traces(storage)
    token = new_token()
    with Stop() as stop, claim_output(storage, token=token, lease_s=job.run.lease_s):
        tidy(storage)
        try:
            with Leases(
                storage, worker=pod_name(), token=token, lease_s=job.run.lease_s
            ) as leases:
                return Stand(job, ask, storage, leases, token, stop, listen).work()
        except (ConfigError, StoppedNow) as error:
            traces.remove(error)
            raise


def dry_run(job: Job, ask: Ask) -> Tuned:
    """What would be tried, and why; nothing is started or written.

    Raises:
        ConfigError: the job is refused.
    """
    storage = open_storage(job.output.path)
    check_places(job, storage)
    check_also(job, ask.also)
    opened = open_run(job, storage, token=new_token())
    engine, limits = opened.words.job.engine, opened.words.limits
    levels = ", ".join(map(str, levels_of(engine, limits)))
    tried = [Tried(changes={}, verdict=f"first, with {levels} rows in flight")]
    for chain in moves_of(opened.words.job, limits, _gathered(opened)):
        tried += [
            Tried(changes=move.changes, verdict=f"may bring {move.gain:.0%}: {move.why}")
            for move in chain
        ]
    asked_for = "changes answers, asked for by `--also`"
    tried += [Tried(changes={name: value}, verdict=asked_for) for name, value in ask.also]
    told = f"nothing is started: at most {ask.most_starts} starts, up to {duration(ask.patience.most_s)} a setting"
    return Tuned(engine=limits.about or engine.name, tried=tried, notes=[told])


def _gathered(opened: Opened) -> Gathered:
    """The first rows, as a forecast needs them."""
    stations, gathered = stations_of(opened), Gathered()
    for task in range(opened.cut.num_tasks):
        rows = TaskRows(task, list(opened.places.task_slices(task)), set())
        for window in stations.windows([rows]):
            gathered.add_planned(window.plan)
        if not gathered.is_open:
            break
    return gathered
