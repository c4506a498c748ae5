"""Memory and speed over inputs that are far larger than memory should be.

    python benchmarks/large.py [--gb 1] [--kinds parquet gzip] [--folder FOLDER] [--keep]

What is measured: `rowmill run` with `echo` (byte tokenizer, 16 tokens an answer) as a child process, over
  parquet    one Parquet file of so many GB (10^9 bytes), plain pages without compression, row groups of 100,000 rows
  gzip       one gzip file of JSON Lines, so many GB of text
Rows are about 1 KB: an id, a question of about 300 characters that is the prompt, a text of about 640 that is carried.
Texts are drawn from a pool of 4,096, ids are not: files are made fast, and no row is like another.
Memory is the kernel's highest resident size (VmHWM) of each process, looked at ten times a second;
pages of the file cache that a process maps are in it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

TEXT = """time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government number night
point home water room mother area money story fact month lot right study book"""
POOL = 4096
GROUP_ROWS = 100_000
ROW_BYTES = 1000
LOOK_S = 0.1


def texts(num_chars: int, seed: int) -> list[str]:
    """A pool of texts of about so many characters."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choices(TEXT.split(), k=num_chars // 5))[
            : num_chars + rng.randrange(-40, 40)
        ]
        for _ in range(POOL)
    ]


def blocks_of_rows(num_rows: int) -> Iterator[tuple[int, int]]:
    """First row and number of rows of each block."""
    for first in range(0, num_rows, GROUP_ROWS):
        yield first, min(GROUP_ROWS, num_rows - first)


def make_parquet(path: Path, num_bytes: int) -> int:
    """A file of about so many bytes. Returns: its rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    num_rows = num_bytes // ROW_BYTES
    questions, carried = pa.array(texts(300, 1)), pa.array(texts(680, 2))
    rng = np.random.default_rng(7)
    schema = pa.schema([("id", pa.int64()), ("question", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for first, count in blocks_of_rows(num_rows):
            columns = [
                pa.array(np.arange(first, first + count)),
                questions.take(pa.array(rng.integers(0, POOL, count))),
                carried.take(pa.array(rng.integers(0, POOL, count))),
            ]
            file.write_table(pa.table(columns, schema=schema), row_group_size=GROUP_ROWS)
    return num_rows


def make_gzip(path: Path, num_bytes: int) -> int:
    """A gzip file of about so many bytes of text. Returns: its rows."""
    from isal import igzip

    num_rows = num_bytes // ROW_BYTES
    rng = random.Random(7)
    encode = msgspec.json.Encoder().encode
    questions = [b',"question":%b' % encode(text) for text in texts(300, 1)]
    carried = [b',"text":%b}\n' % encode(text) for text in texts(650, 2)]
    with igzip.open(path, "wb", compresslevel=1) as file:
        for first, count in blocks_of_rows(num_rows):
            heads = [b'{"id":%d' % i for i in range(first, first + count)]
            asks, rests = rng.choices(questions, k=count), rng.choices(carried, k=count)
            file.write(
                b"".join([b for row in zip(heads, asks, rests, strict=True) for b in row])
            )
    return num_rows


MAKERS: dict[str, tuple[str, Callable[[Path, int], int]]] = {
    "parquet": ("in.parquet", make_parquet),
    "gzip": ("in.jsonl.gz", make_gzip),
}


def command_of(source: Path, out: Path) -> list[str]:
    """What is measured."""
    echo = ["--engine", "echo", "--set", "engine.tokenizer=bytes"]
    row = ["--prompt", "{question}", "--set", "sampling.max_tokens=16", "--set", "raw=true"]
    return [
        sys.executable,
        "-m",
        "rowmill",
        "run",
        str(source),
        "-o",
        str(out),
        *echo,
        *row,
        "--json",
    ]


def run_watched(command: list[str]) -> dict[str, Any]:
    """Run a command to its end. Returns: seconds, and the highest resident size by process."""
    peaks: dict[int, tuple[str, int]] = {}
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        while child.poll() is None:
            look_at(child.pid, "parent", peaks)
            time.sleep(LOOK_S)
        told = child.stdout.read() if child.stdout else b""
    seconds = time.perf_counter() - began
    if child.returncode:
        sys.exit(f"rowmill ended with {child.returncode}")
    by_role: dict[str, int] = {}
    for role, peak in peaks.values():
        by_role[role] = max(by_role.get(role, 0), peak)
    return {"seconds": seconds, "peak_mib": by_role, "told": json.loads(told)}


def look_at(pid: int, role: str, peaks: dict[int, tuple[str, int]]) -> None:
    """Note the peak of a process and of all below it; those that ended keep what was seen last."""
    folder = Path(f"/proc/{pid}")
    try:
        lines = (folder / "status").read_text().splitlines()
        below = (folder / "task" / str(pid) / "children").read_text().split()
        for task in (folder / "task").iterdir():
            if task.name != str(pid):
                below += (task / "children").read_text().split()
    except OSError:
        return
    peak = [int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")]
    if peak:
        peaks[pid] = (role, peak[0])
    for child in below:
        look_at(int(child), role_of(child), peaks)


def role_of(pid: str) -> str:
    """What a child process does, by its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return "child"
    for mark, role in (
        ("ahead", "publishing"),
        ("publish", "publishing"),
        ("engines", "engine"),
    ):
        if mark in words:
            return role
    return "child"


def size_of(folder: Path) -> int:
    """Bytes of the files under a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(kind: str, folder: Path, num_bytes: int) -> None:
    """Make one input, run over it, tell, and take everything away."""
    name, make = MAKERS[kind]
    source, out = folder / name, folder / f"out-{kind}"
    began = time.perf_counter()
    num_rows = make(source, num_bytes)
    made_s = time.perf_counter() - began
    print(
        f"{kind}: {num_rows:,} rows, {source.stat().st_size / 1e9:.2f} GB on the disk,"
        f" made in {made_s:.0f} s; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    found = run_watched(command_of(source, out))
    peaks = ", ".join(f"{role} {peak:,} MiB" for role, peak in found["peak_mib"].items())
    print(
        f"{kind}: {found['seconds']:.1f} s, {num_rows / found['seconds']:,.0f} rows/s; peaks: {peaks};"
        f" spool {size_of(out / 'spool') / 1e9:.2f} GB, results {size_of(out / 'results') / 1e9:.2f} GB;"
        f" load {os.getloadavg()[0]:.1f}; {json.dumps(found['told'])}",
        flush=True,
    )


def main() -> None:
    """One kind after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gb", type=float, default=1.0, help="10^9 bytes of each input")
    parser.add_argument("--kinds", nargs="*", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--keep", action="store_true", help="leave files where they are")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        folder = Path(tempfile.mkdtemp(prefix="rowmill-large-", dir=arguments.folder))
        try:
            measure(kind, folder, int(arguments.gb * 1e9))
        finally:
            if not arguments.keep:
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
