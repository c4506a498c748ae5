"""Tasks, epochs, workers <-> names in a run folder: the only file that knows them.

Promises: numbers are padded, so names sort as numbers do; every name made here can be read back here.
Knows nothing of: what lies under the names, or where (see storage).
Memory: none.

    run.json                        identity, effort, versions, owner token, reasons
    plan/shards.jsonl               the input's slices, end to end
    plan/tasks.json                 cut once
    plan/lots.json                  where the lots of an input that was sorted begin
    plan/append-N.json              files that joined a finished run, and their slices
    plan/moved.jsonl                files that lie elsewhere since, with their place
    plan/engine-steps.json          settings that engines came down to for want of memory
    plan/vectors.json               how long the vectors of the run are
    plan/probe.json                 what trials of the engine's settings measured, and what they foretell
    plan/retry-N.json               which failed rows the N-th retry asks again
    spool/N.zst                     text of an input file that cannot be read in place
    lots/TASK.zst                   rows of a task whose input was sorted, until results are published
    segments/TASK/EPOCH-N.jsonl     outcomes
    commits/TASK.json               create-only: the segments that count
    commits/TASK.rN.json            the same after the N-th retry of failed rows
    prepared/TASK.ids               prompts of an open task as token ids, made ahead
    leases/TASK.json                epoch, heartbeat counter
    leases/owner.lock               flock and note of the owner (objects: leases/owner.json)
    leases/workers.lock             flock that workers of one run share
    events/WORKER.jsonl             what happened
    engines/PID.json, PID-N.json    engine process groups, to end orphans
    arrivals/TASK/EPOCH.u32         in which order the rows of a committed task were answered
    results/part-N.SUFFIX           published; nothing else lies there, so that readers take the whole folder
    loads/SINK/TASK.json            what of a committed task a vector store holds
    done.json                       written last: the parts that are published
    batch.json                      of `run-batch`: which files the run is to become
    report.html                     what `rowmill report` wrote last; nobody reads it but people
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

RUN = "run.json"
SHARDS = "plan/shards.jsonl"
TASKS = "plan/tasks.json"
STEPS = "plan/engine-steps.json"
VECTORS = "plan/vectors.json"
RETRIES = "plan/retry-"
PROBE = "plan/probe.json"
APPENDS = "plan/append-"
MOVED = "plan/moved.jsonl"
SPOOL = "spool/"
LOT_EDGES = "plan/lots.json"
LOTS = "lots/"
SEGMENTS = "segments/"
COMMITS = "commits/"
LEASES = "leases/"
OWNER_LOCK = "leases/owner.lock"
OWNER_NOTE = "leases/owner.json"
WORKERS_LOCK = "leases/workers.lock"
EVENTS = "events/"
ENGINES = "engines/"
RESULTS = "results/"
DONE = "done.json"
BATCH = "batch.json"
REPORT = "report.html"
"""Written for people when they ask; no part of the run, and not `is_ours`: a page of that name may be somebody else's."""
BESIDE = ".run"
"""What is put behind the name of a batch's file: the folder of its run."""
INPUT = ".input"
"""The same, of copies of input that came from a URL."""
AGAIN = ".retry"
"""The same, of what is asked again where no run is left."""
ARRIVALS = "arrivals/"
PREPARED = "prepared/"
LOADS = "loads/"

_FOLDERS = (
    *("plan/", SPOOL, LOTS, SEGMENTS, COMMITS),
    *(LEASES, EVENTS, ENGINES, RESULTS, ARRIVALS, PREPARED, LOADS),
)
_SEGMENT = re.compile(r"segments/(\d+)/(\d+)-(\d+)\.jsonl")
_COMMIT = re.compile(r"commits/(\d+)(?:\.r(\d+))?\.json")
_LEASE = re.compile(r"leases/(\d+)\.json")
_PREPARED = re.compile(r"prepared/(\d+)\.ids")
_EVENTS = re.compile(r"events/([^/]+)\.jsonl")
_ENGINE = re.compile(r"engines/(\d+)(?:-\d+)?\.json")
_PART = re.compile(r"results/part-(\d+)(?:\.[a-z]+)+")


class SegmentName(NamedTuple):
    """What a segment's name says."""

    task: int
    epoch: int
    number: int


def segments_of(task: int) -> str:
    """Prefix of a task's segments."""
    return f"{SEGMENTS}{task:07d}/"


def segment(task: int, epoch: int, number: int) -> str:
    """Name of the `number`-th segment that the holder of `epoch` wrote."""
    return f"{segments_of(task)}{epoch:04d}-{number:05d}.jsonl"


def lot(task: int) -> str:
    """Name of the rows of a task of a sorted input."""
    return f"{LOTS}{task:07d}.zst"


def commit(task: int, retry: int = 0) -> str:
    """Name of a task's commit: the first, or that of a later retry. Names sort by task, then by retry."""
    return f"{COMMITS}{task:07d}{f'.r{retry:03d}' if retry else ''}.json"


def retry(number: int) -> str:
    """Name of the plan of the `number`-th retry, counted from 1."""
    return f"{RETRIES}{number:03d}.json"


def append(number: int) -> str:
    """Name of the `number`-th addition to the input, counted from 1."""
    return f"{APPENDS}{number:03d}.json"


def lease(task: int) -> str:
    """Name of a task's lease."""
    return f"{LEASES}{task:07d}.json"


def prepared(task: int) -> str:
    """Name of the token ids of a task's prompts, made ahead."""
    return f"{PREPARED}{task:07d}.ids"


def events(worker: str) -> str:
    """Name of a worker's event file; characters that no file name takes are escaped."""
    safe = quote(worker, safe=" @+=:,")
    return f"{EVENTS}{'%2E' + safe[1:] if safe.startswith('.') else safe}.jsonl"


def engine(pid: int) -> str:
    """Name of the record of an engine's process group."""
    return f"{ENGINES}{pid}.json"


def arrival(task: int, epoch: int) -> str:
    """Name of the order in which the rows of a task were answered, as the holder of `epoch` saw it."""
    return f"{ARRIVALS}{task:07d}/{epoch:04d}.u32"


def part(number: int, suffix: str = ".jsonl") -> str:
    """Name of a published part, counted from 0."""
    return f"{RESULTS}part-{number:05d}{suffix}"


def spool(number: int) -> str:
    """Name, within the folder of spools, of the spool of the `number`-th input file, counted from 0."""
    return f"{number:05d}.zst"


def loads_of(sink: str) -> str:
    """Prefix of what is known of one vector store, by a digest of its address."""
    return f"{LOADS}{sink}/"


def load(sink: str, commit: str) -> str:
    """Name of the record that a store holds what one commit names."""
    return loads_of(sink) + commit.removeprefix(COMMITS)


def commit_of_load(name: str) -> str:
    """Name of the commit that such a record is of."""
    return COMMITS + name.rpartition("/")[2]


def parse_segment(name: str) -> SegmentName | None:
    """Task, epoch and number of a segment; None where the name is none."""
    match = _SEGMENT.fullmatch(name)
    return SegmentName(int(match[1]), int(match[2]), int(match[3])) if match else None


def task_of_commit(name: str) -> int | None:
    """Task of a commit's name; None where the name is none."""
    return _number(_COMMIT, name)


def retry_of_commit(name: str) -> int:
    """Number of the retry that a commit belongs to; 0: the first asking."""
    match = _COMMIT.fullmatch(name)
    return int(match[2] or 0) if match else 0


def task_of_lease(name: str) -> int | None:
    """Task of a lease's name; None where the name is none."""
    return _number(_LEASE, name)


def task_of_prepared(name: str) -> int | None:
    """Task of a name made by `prepared`; None where the name is none."""
    return _number(_PREPARED, name)


def worker_of_events(name: str) -> str | None:
    """Worker of an event file's name; None where the name is none."""
    match = _EVENTS.fullmatch(name)
    return unquote(match[1]) if match else None


def pid_of_engine(name: str) -> int | None:
    """Process id in the name of an engine's record; None where the name is none."""
    return _number(_ENGINE, name)


def number_of_part(name: str) -> int | None:
    """Number of a published part; None where the name is none."""
    return _number(_PART, name)


def is_ours(name: str) -> bool:
    """Whether a run folder has such a name; others belong to somebody else."""
    return name in (RUN, DONE, BATCH) or name.startswith(_FOLDERS)


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.fullmatch(name)
    return int(match[1]) if match else None
