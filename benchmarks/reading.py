"""Rows a second from a file to rows, beside bare parsers of polars and pyarrow.

    python benchmarks/reading.py [--rows 1000000] [--rounds 5] [--only csv jsonl ...] [--folder FOLDER]

Files of 5 columns: id (whole number), question (about 60 characters), kind (one of twelve), score (a float),
note (about 40 characters):
  csv        no quotes                          csv-quoted   every text in quotes, a line end in each 50th note
  jsonl      one object a line                  parquet      one row group (zstd); parquet-10: ten
What is measured, in one process, in interleaved rounds:
  polars     the bare parse: read_csv with every column text, read_ndjson, read_parquet
  pyarrow    the same: csv.read_csv, json.read_json, parquet.read_table
  scan       open_source: files listed, hashed, records found and counted, cut into shards
  read       read_rows over all shards; of tables also `read 2`, the columns that a template of two asks for
  requests   read, and each row validated into a request of a template (`{question} {note}`, an id)
Wall time and processor time of the process (all threads), the best and the median of all rounds. Bare parsers use
all cores, rowmill reads with one thread, since others of its threads work at the same time. A share of 1 is as fast as the
parser; the aim is 0.5 of the slower of the two by scan and read together.
"""

from __future__ import annotations

import argparse
import csv
import gc
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rowmill.config import Job
from rowmill.pipeline import each
from rowmill.read import open_source, read_rows
from rowmill.rows import Limits, Shard
from rowmill.validate import Recipe, compile_recipe

TEXT = """time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government number night
point home water room mother area money story fact month lot right study book"""
KINDS = [f"kind-{number}" for number in range(12)]
NAMES = ("id", "question", "kind", "score", "note")
TEMPLATE = "{question} {note}"
Contender = Callable[[], int]


class Took(NamedTuple):
    """One turn."""

    wall_s: float
    cpu_s: float


def make_rows(num_rows: int) -> list[tuple[int, str, str, float, str]]:
    """The same rows each time."""
    rng = random.Random(7)

    def text(num_words: int) -> str:
        return " ".join(rng.choices(TEXT.split(), k=num_words))

    return [
        (i, text(11), KINDS[rng.randrange(12)], round(rng.random() * 100, 4), text(7))
        for i in range(num_rows)
    ]


def make_files(folder: Path, num_rows: int) -> None:
    """All five files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = make_rows(num_rows)
    with (folder / "csv.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([NAMES, *rows])
    broken = [
        (*row[:4], row[4].replace(" ", "\n", 1)) if row[0] % 50 == 0 else row for row in rows
    ]
    with (folder / "csv-quoted.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerows([NAMES, *broken])
    encode = msgspec.json.Encoder().encode
    with (folder / "jsonl.jsonl").open("wb") as lines:
        lines.writelines(encode(dict(zip(NAMES, row, strict=True))) + b"\n" for row in rows)
    table = pa.table(dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True)))
    pq.write_table(
        table, folder / "parquet.parquet", compression="zstd", row_group_size=num_rows
    )
    tenth = -(-num_rows // 10)
    pq.write_table(
        table, folder / "parquet-10.parquet", compression="zstd", row_group_size=tenth
    )


def by_polars(path: Path) -> Contender:
    """The bare parse of polars."""
    import polars as pl

    if path.suffix == ".csv":
        return lambda: len(pl.read_csv(path, infer_schema=False))
    if path.suffix == ".jsonl":
        return lambda: len(pl.read_ndjson(path))
    return lambda: len(pl.read_parquet(path))


def by_pyarrow(path: Path) -> Contender:
    """The bare parse of pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv as arrow_csv
    from pyarrow import json as arrow_json

    if path.suffix == ".csv":
        parse = arrow_csv.ParseOptions(newlines_in_values=path.stem == "csv-quoted")
        convert = arrow_csv.ConvertOptions(column_types=dict.fromkeys(NAMES, pa.string()))
        return lambda: len(
            arrow_csv.read_csv(path, parse_options=parse, convert_options=convert)
        )
    if path.suffix == ".jsonl":
        return lambda: len(arrow_json.read_json(path))
    return lambda: len(pq.read_table(path))


def recipe() -> Recipe:
    """A job that asks with two columns."""
    job = Job(prompt=TEMPLATE, raw=True)
    return compile_recipe(job, limits=Limits(sampling=()), chat_template=False)


def scan(path: Path) -> list[Shard]:
    """Shards of a file."""
    return open_source((str(path),)).shards


def contenders(path: Path) -> dict[str, Contender]:
    """All that is measured of a file, by name."""
    shards, asked = scan(path), recipe()

    def refuse(key: int, error: Exception) -> None:
        sys.exit(f"row {key} is bad: {error}")

    def requests() -> int:
        return sum(
            len(each(rows, asked, refuse))
            for shard in shards
            for rows in read_rows(shard, wanted=asked.wanted)
        )

    def read(**more: Any) -> int:
        return sum(len(rows) for shard in shards for rows in read_rows(shard, **more))

    found: dict[str, Contender] = {
        "polars": by_polars(path),
        "pyarrow": by_pyarrow(path),
        "scan": lambda: sum(shard.num_lines for shard in scan(path)),
        "read": read,
    }
    if path.suffix != ".jsonl":
        found["read 2"] = lambda: read(wanted=asked.wanted)
    return found | {"requests": requests}


def once(contender: Contender, num_rows: int) -> Took:
    """One turn, checked to have seen all rows."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    count = contender()
    took = Took(time.perf_counter() - wall, time.process_time() - cpu)
    assert count == num_rows
    return took


def tell(name: str, took: dict[str, list[Took]]) -> None:
    """Times of one file, and shares of the bare parses."""
    best = {who: Took(*map(min, zip(*turns, strict=True))) for who, turns in took.items()}
    middle = {
        who: Took(*map(statistics.median, zip(*turns, strict=True)))
        for who, turns in took.items()
    }
    for who in took:
        print(
            f"{name:11} {who:9} wall {best[who].wall_s:.3f} (median {middle[who].wall_s:.3f}) s,"
            f" cpu {best[who].cpu_s:.3f} (median {middle[who].cpu_s:.3f}) s"
        )
    reading = [who for who in ("read", "read 2", "requests") if who in took]
    for who in reading:
        ours = Took(*(best["scan"][at] + best[who][at] for at in (0, 1)))
        shares = ", ".join(
            f"{bare[at] / ours[at]:.2f} of {parser} by {kind}"
            for parser, bare in (("polars", best["polars"]), ("pyarrow", best["pyarrow"]))
            for at, kind in ((0, "wall"), (1, "cpu"))
        )
        print(f"{name:11} scan + {who}: {shares}", flush=True)


def main() -> None:
    """File after file, round after round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=None, help="names of files")
    parser.add_argument("--who", nargs="*", default=None, help="names of contenders")
    parser.add_argument("--folder", type=Path, default=None, help="keep files there")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="rowmill-reading-"))
    if not list(folder.glob("parquet-10.parquet")):
        make_files(folder, arguments.rows)
    names = [
        "csv.csv",
        "csv-quoted.csv",
        "jsonl.jsonl",
        "parquet.parquet",
        "parquet-10.parquet",
    ]
    print(f"{arguments.rows:,} rows, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for path in [folder / name for name in names]:
        if arguments.only and path.stem not in arguments.only:
            continue
        found = contenders(path)
        took: dict[str, list[Took]] = {
            who: [] for who in found if not arguments.who or who in arguments.who
        }
        for _ in range(arguments.rounds):
            for who, turns in took.items():
                turns.append(once(found[who], arguments.rows))
        print(f"{path.stem}: {path.stat().st_size / 1e6:.0f} MB, load {os.getloadavg()[0]:.1f}")
        tell(path.stem, took)
    if arguments.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
