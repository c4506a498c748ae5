"""What token ids that were made ahead save a worker: its stations with them and without, the same rows.

    python benchmarks/prepared.py [--tokenizer FILE] [--rows 30000] [--words 20 200] [--rounds 3] [--folder FOLDER]

FILE is a tokenizer.json (or a model's folder), by default the small one of the tests. A run is opened as a worker opens
it, and its rows go through reading, validating, measuring and planning, window by window; nothing is asked. `with` has
all tasks tokenised before by `Preparer`, whose own time is told beside; rounds are interleaved, and the order turns.
Seconds are of the wall and of all of this process's threads (`cpu`); on the way the keys and ids of both ways are
compared.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

import xxhash

from rowmill import rundir
from rowmill.config import Job
from rowmill.executors.opening import Opened, open_run, start_run, stations_of
from rowmill.executors.preparing import Preparer, with_prepared
from rowmill.leases import claim_output
from rowmill.pipeline import TaskRows
from rowmill.storage import Storage, open_storage

ROOT = Path(__file__).resolve().parent.parent
WORDS = (ROOT / "docs" / "rules.md").read_text().split()


def make_rows(path: Path, rows: int, words: tuple[int, int]) -> None:
    """Prompts of the words of a page, each in an order of its own."""
    drawn = random.Random(7)
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            text = " ".join(drawn.choices(WORDS, k=drawn.randint(*words)))
            text = text.replace("\\", "/").replace('"', "'")
            file.write(f'{{"id": {i}, "prompt": "{text}"}}\n')


def passed(opened: Opened) -> tuple[float, float, int, int, str]:
    """All windows once. Returns: seconds, cpu seconds, tokens, rows with ids, a digest of keys and ids."""
    digest = xxhash.xxh3_128()
    stations = stations_of(opened)
    tasks = (
        TaskRows(task, list(opened.places.task_slices(task)), set())
        for task in range(opened.cut.num_tasks)
    )
    began, cpu = time.monotonic(), time.process_time()
    for window in stations.windows(tasks):
        for batch in window.plan.batches(4096):
            digest.update(str(batch.keys).encode())
            digest.update(batch.ids.tobytes())
    seconds, cpu_s = time.monotonic() - began, time.process_time() - cpu
    return seconds, cpu_s, stations.num_tokens, stations.num_known, digest.hexdigest()


def prepare(job: Job, opened: Opened, storage: Storage) -> None:
    began, cpu = time.monotonic(), time.process_time()
    preparer = Preparer(job, token="mine")
    made = [preparer.prepare(task) for task in range(opened.cut.num_tasks)]
    preparer.close()
    assert all(one.error is None for one in made)
    size = sum(storage.size(name) or 0 for name in storage.list(rundir.PREPARED))
    seconds, cpu_s = time.monotonic() - began, time.process_time() - cpu
    print(
        f"ahead    {seconds:6.2f} s, cpu {cpu_s:6.2f} s: {len(made)} tasks, {size / 2**20:.1f} MiB on the disk"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--tokenizer", default=str(ROOT / "tests" / "golden" / "tiny_tokenizer")
    )
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--words", type=int, nargs=2, default=[20, 200])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        source, out = Path(name) / "rows.jsonl", f"{name}/out"
        make_rows(source, asked.rows, tuple(asked.words))
        engine = {"name": "echo", "tokenizer": asked.tokenizer, "max_model_len": 8192}
        job = Job.model_validate(
            {"source": str(source), "output": out, "raw": True, "engine": engine}
        )
        storage = open_storage(out)
        with claim_output(storage, token="mine"):
            start_run(open_run(job, storage, token="mine"), storage)
            opened = open_run(job, storage, token="mine")
            prepare(job, opened, storage)
            told: dict[str, list[tuple[float, float, int, int, str]]] = {
                "without": [],
                "with": [],
            }
            for round_ in range(asked.rounds):
                for way in ("without", "with")[:: 1 if round_ % 2 == 0 else -1]:
                    given = with_prepared(opened, storage) if way == "with" else opened
                    told[way].append(passed(given))
        for way, runs in told.items():
            walls, cpus = [run[0] for run in runs], [run[1] for run in runs]
            print(
                f"{way:<8} {statistics.median(walls):6.2f} s ({min(walls):.2f} to {max(walls):.2f}),"
                f" cpu {statistics.median(cpus):6.2f} s ({min(cpus):.2f} to {max(cpus):.2f}):"
                f" {runs[0][2]:,} tokens, {runs[0][3]:,} rows with ids made ahead"
            )
        assert len({run[4] for runs in told.values() for run in runs}) == 1
        print(f"keys and ids are the same; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
