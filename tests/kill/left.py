"""What a killed or finished run left: rows on the disk, rows started, processes alive, and whether all is well.

Read by the layout that design/001-disk-layout.md writes down, with no code of rowmill's.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from backports import zstd

from tests.cases.compare import read_records
from tests.kill.small_job import MARK, SmallJob, Worker

GONE_WITHIN_S = 10.0


class Broken(AssertionError):
    """A promise that a trial found broken."""


def rows_on_disk(out: Path) -> set[int]:
    """Keys of all rows that have an outcome: those of commits, and whole lines of tasks without one."""
    keys: set[int] = set()
    committed = set()
    for file in sorted((out / "commits").glob("*.json")):
        commit = json.loads(file.read_bytes())
        committed.add(int(commit["task"]))
        for ref in commit["segments"]:
            content = (out / ref["name"]).read_bytes()[: ref["num_bytes"]]
            keys.update(_keys(content))
    for file in _segments(out):
        if int(file.parent.name) not in committed:
            keys.update(_keys(file.read_bytes()))
    return keys


def open_segments(out: Path) -> list[Path]:
    """Segments of tasks that are not committed."""
    committed = {int(file.stem.partition(".")[0]) for file in (out / "commits").glob("*.json")}
    return [file for file in _segments(out) if int(file.parent.name) not in committed]


def tear(rng: random.Random, out: Path) -> None:
    """Leave open segments as a loss of power or a short write would: cut, or with half a line or zeros behind."""
    for file in open_segments(out):
        content = file.read_bytes()
        how = rng.choice(["cut", "cut", "half a line", "zeros"])
        if how == "cut":
            content = content[: rng.randint(0, len(content))]
        if how == "half a line":
            line = _line_of_new_row(out, content)
            content = content[: content.rfind(b"\n") + 1] + line[: rng.randint(1, len(line))]
        if how == "zeros":
            content += bytes(rng.randint(1, 5000))
        file.write_bytes(content)


def starts(log: Path) -> Counter[int]:
    """How often each row was started by an engine."""
    return Counter(map(int, log.read_bytes().split())) if log.exists() else Counter()


def living(mark: str) -> list[int]:
    """Process ids of a trial that are alive."""
    return [pid for pid in _process_ids() if has_mark(pid, mark) and not _is_dead(pid)]


def has_mark(pid: int, mark: str) -> bool:
    """Whether a process belongs to a trial."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in environment.split(b"\0")


def engine_pids(job: SmallJob) -> list[int]:
    """Engines of a trial that its records tell of and that are alive."""
    pids = []
    for file in (job.out / "engines").glob("*.json"):
        try:
            pid = int(json.loads(file.read_bytes())["pid"])
        except (FileNotFoundError, json.JSONDecodeError):
            continue
        if has_mark(pid, job.mark):
            pids.append(pid)
    return pids


def check_ended(job: SmallJob, worker: Worker, *, wanted: int = 0) -> None:
    """See that a worker ended well."""
    code = worker.code()
    if code != wanted:
        told = f"exit code {code}: {worker.told()}"
        raise Broken(told)


def check_whole(job: SmallJob, *, killers: frozenset[str] = frozenset()) -> None:
    """See that each row is in the results once, in order, with its own answer, and that nothing else is left.

    Args:
        killers: places of the rows that kill every engine: no others may be told to.
    """
    records = published(job.out)
    wanted = [row["place"] for row in job.rows]
    found = Counter(record["rowmill_row"] for record in records)
    lost = [place for place in wanted if not found[place]]
    doubled = [place for place, count in found.items() if count > 1]
    if lost or doubled or len(records) != len(wanted):
        told = f"{len(records)} records for {len(wanted)} rows; lost {lost}; doubled {doubled}"
        raise Broken(told)
    for row, record in zip(job.rows, records, strict=True):
        carried = {name: value for name, value in record.items() if name in row}
        is_killer = row["place"] in killers
        fate = (None, "killed_engine") if is_killer else (row["prompt"], None)
        if {"place": record["rowmill_row"], **carried} != row or (
            record["rowmill_text"],
            record["rowmill_error_kind"],
        ) != fate:
            told = f"{row} came back as {record}"
            raise Broken(told)
    extra = {f"results/{path.name}" for path in (job.out / "results").iterdir()} - _parts(
        job.out
    )
    if extra:
        told = f"results of an earlier publishing are left: {extra}"
        raise Broken(told)
    stranded = [str(path) for path in job.out.rglob(".tmp-*")]
    if stranded:
        told = f"half-written files are left: {stranded}"
        raise Broken(told)


def check_nobody_lives(job: SmallJob) -> None:
    """See that all processes of a trial are gone, or go without being told."""
    give_up_at = time.monotonic() + GONE_WITHIN_S
    while pids := living(job.mark):
        if time.monotonic() > give_up_at:
            told = f"processes still alive: {pids}"
            raise Broken(told)
        time.sleep(0.005)


def _parts(out: Path) -> set[str]:
    return {part["name"] for part in json.loads((out / "done.json").read_bytes())["parts"]}


def published(out: Path) -> list[dict[str, Any]]:
    """All records of the results that a run tells of, in order."""
    try:
        names = [p["name"] for p in json.loads((out / "done.json").read_bytes())["parts"]]
        return [record for name in names for record in _records(out / name)]
    except (OSError, ValueError) as error:
        told = f"results cannot be read: {error}"
        raise Broken(told) from error


def _records(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    if path.suffix == ".zst":
        return [json.loads(line) for line in zstd.decompress(path.read_bytes()).splitlines()]
    return read_records(path)


def _keys(content: bytes) -> Iterator[int]:
    for line in content.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except ValueError:
            return
        yield int(value["key"])


def _segments(out: Path) -> list[Path]:
    return sorted((out / "segments").glob("*/*.jsonl"))


def _line_of_new_row(out: Path, content: bytes) -> bytes:
    """The line, without its end, of an outcome for a row that has none yet: the one after the last done."""
    keys = sorted(_keys(content)) or [0]
    done = rows_on_disk(out)
    key = next(key for key in range(keys[-1], keys[-1] + 10**6) if key not in done)
    return json.dumps(
        {"key": key, "status": "ok", "text": "no answer"}, separators=(",", ":")
    ).encode()


def _process_ids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _is_dead(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"
