"""A job on a Ray cluster: this process owns the run and publishes it, actors answer its rows.

Promises: the rows of a run are kept as on one machine: workers share tasks by leases, and what Ray loses is asked
again; when this process dies its workers end, and the same command goes on.
Knows nothing of: what rows say.

The pool (pool.py) starts actors (actor.py), each of which is a worker as on one machine (sharing.py);
the ledger reads what they commit, the view makes one progress of all.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType

from rowmill.ahead import publishing_ahead
from rowmill.config import Job
from rowmill.engines.warm import WarmFleet
from rowmill.errors import ConfigError, OutputInUse
from rowmill.eventlog import EventLog
from rowmill.events import Listener, Note, Summary
from rowmill.executors import local
from rowmill.executors.caps import Caps
from rowmill.executors.lots import with_lots
from rowmill.executors.opening import (
    Opened,
    as_recorded,
    new_token,
    open_run,
    planned_event,
    start_run,
    stations_of,
)
from rowmill.executors.placing import check_places
from rowmill.executors.ray.actor import Order
from rowmill.executors.ray.cluster import connected, living_nodes, needs
from rowmill.executors.ray.ledger import Ledger
from rowmill.executors.ray.policy import room
from rowmill.executors.ray.pool import Pool
from rowmill.executors.ray.preparers import Preparers
from rowmill.executors.reasons import versions
from rowmill.executors.sinking import check_sink, loading, with_loaded
from rowmill.executors.slots import ALONE, pod_name
from rowmill.executors.stopping import Stop, StoppedNow
from rowmill.executors.traces import Traces, tidy
from rowmill.journal import paid_of, read_commits
from rowmill.leases import Owner, claim_output, current_note
from rowmill.leases.note import is_gone
from rowmill.pipeline import TaskRows
from rowmill.read.unpack import STDIN
from rowmill.storage import Storage, open_storage

PATIENCE_S = 60.0
"""How long workers of a driver that died may go on before a new one is refused: Ray ends them within seconds."""
LOOK_AGAIN_S = 0.2


def run(
    job: Job,
    *,
    listen: Listener | None = None,
    token: str = "",
    append: bool = False,
    warm: WarmFleet | None = None,
) -> Summary:
    """Run a job to its end, or to a stop that can be resumed.

    Raises:
        ConfigError: refused, nothing done.
        EngineDied, StorageError: died; the same call resumes.
    """
    _refuse_what_is_local(job, token=token, append=append, warm=warm)
    with Stop() as stop, connected(job) as ray:
        storage = open_storage(job.output.path)
        check_places(job, storage)
        traces, mine = Traces(storage), new_token()
        with _claimed(storage, mine, job.run.lease_s):
            tidy(storage)
            try:
                opened = open_run(job, storage, token=mine, listen=listen)
                opened = with_lots(opened, storage, listen=listen)
                log = EventLog(storage, pod_name())
                _begin(opened, storage, log, listen)
                return _work(ray, opened, storage, mine, stop=stop, log=log, listen=listen)
            except (ConfigError, StoppedNow) as error:
                traces.remove(error)
                raise


def _refuse_what_is_local(
    job: Job, *, token: str, append: bool, warm: WarmFleet | None
) -> None:
    if STDIN in job.source:
        reason = "standard input is read by one machine alone; give Ray workers a file that all nodes see"
        raise ConfigError(reason=reason)
    if token or append or warm is not None:
        what = "`--append`" if append else "joining a run"
        reason = f"{what} is for `run.executor` = `local`; what it leaves open, Ray workers go on with"
        raise ConfigError(reason=reason)


def _claimed(storage: Storage, token: str, lease_s: float) -> Owner:
    """Own the output; workers of a driver that died are waited for until Ray has ended them."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            return claim_output(storage, token=token, lease_s=lease_s)
        except OutputInUse:
            note = current_note(storage)
            owner_lives = note is None or not note.members or not is_gone(note.members[0])
            if owner_lives or time.monotonic() > give_up_at:
                raise
        time.sleep(LOOK_AGAIN_S)


def _begin(opened: Opened, storage: Storage, log: EventLog, listen: Listener | None) -> None:
    """Check the first rows of a new run before a GPU is asked for, write it down, tell the plan."""
    stations = stations_of(opened)
    if opened.words.job.validate_.strict and opened.is_new:
        local.refuse_bad_rows(opened)
    check_sink(opened)
    if opened.is_new:
        tasks = (
            TaskRows(task=task, slices=list(opened.places.task_slices(task)), done=set())
            for task in opened.new_tasks
        )
        for _ in stations.windows(tasks):
            if stations.num_read >= opened.words.job.validate_.first_rows:
                break
        stations.check_duplicates()
        stations.check_any_asked()
        start_run(opened, storage)
    event = planned_event(opened, stations, resumed=Ledger(storage, opened.cut).resumed)
    log.add(event)
    if listen is not None:
        listen(event)


def _work(
    ray: ModuleType,
    opened: Opened,
    storage: Storage,
    token: str,
    *,
    stop: Stop,
    log: EventLog,
    listen: Listener | None,
) -> Summary:
    job, ledger = opened.words.job, Ledger(storage, opened.cut)
    pool = _pool(ray, opened, storage, token, ledger, stop=stop, log=log, listen=listen)
    is_plain = not opened.cut.additions and opened.cut.lots is None
    pays = ledger.open_tasks > 0 and is_plain
    form = local.form_of_run(opened)
    with (
        publishing_ahead(storage, opened.cut, job.output, form, pays=pays) as ahead,
        loading(opened, storage, ALONE, listen) as load,
    ):
        pool.run()
        whole = local.is_whole(opened, storage)
        done = local.publish_run(opened, storage, ahead) if whole else None
        if not stop:
            load.end(is_whole=done is not None)
    return with_loaded(local.summary(opened, pool, stop, done), load.result, job)


def _pool(
    ray: ModuleType,
    opened: Opened,
    storage: Storage,
    token: str,
    ledger: Ledger,
    *,
    stop: Stop,
    log: EventLog,
    listen: Listener | None,
) -> Pool:
    """The workers of the run, and those that tokenise ahead of them."""
    job, nodes = opened.words.job, living_nodes(ray)
    need = needs(job, nodes)

    def note(text: str) -> None:
        log.add(Note(text=text))
        if listen is not None:
            listen(Note(text=text))

    words = " and ".join(f"{amount:g} {name}" for name, amount in need.items() if amount)
    note(f"Ray: {len(nodes)} nodes with room for {room(nodes, need)} workers of {words} each")
    paid = paid_of(*(commit.paid() for commit in read_commits(storage).values()))
    # Ids lie by ranges of the input; of a lot they would be looked for in all of them.
    can_prepare = opened.words.limits.takes == "ids" and opened.cut.lots is None
    asked = job.ray.prepare if can_prepare else 0
    order = Order(
        job=_everywhere(job),
        token=token,
        version=versions().get("rowmill", ""),
        prepared=asked != 0,
    )
    return Pool(
        ray,
        order,
        ledger,
        Preparers(
            ray, order, storage, ledger, asked=asked, most=job.ray.workers, need=need, note=note
        ),
        most=job.ray.workers,
        need=need,
        caps=Caps(job.run, storage, stop, before=paid),
        stop=stop,
        log=log,
        listen=listen,
    )


def _everywhere(job: Job) -> dict[str, object]:
    """The job, its paths named so that they are found from any folder."""
    tree = as_recorded(job)
    tree["output"] = {**tree.get("output", {}), "path": _absolute(job.output.path)}
    return tree


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())
