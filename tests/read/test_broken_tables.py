"""Files with bytes changed anywhere: refused or an error of ours, never a traceback, a crash or a hang."""

from __future__ import annotations

import io
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from rowmill.errors import BadSource, StorageError
from rowmill.read import arrow as arrow_files
from rowmill.read import parquet as parquet_files
from rowmill.read.table import spans_of
from tests.read.files import found

TRIALS = 150


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("seed", [0, 1])
def test_broken_files_raise_our_errors_alone(
    tmp_path: Path, root: Path, python: str, kind: str, seed: int
) -> None:
    command = [python, str(Path(__file__)), kind, str(seed), str(tmp_path / "file")]

    done = subprocess.run(
        command,
        cwd=root,
        env={"PYTHONPATH": f"{root}/src:{root}"},
        capture_output=True,
        timeout=250,
    )

    assert (0, "") == (done.returncode, done.stderr.decode())
    fates = done.stdout.decode().split()
    assert TRIALS == len(fates)
    assert {"read", "BadSource", "StorageError"} == set(fates)


def tried(kind: str, seed: int, path: Path) -> list[str]:
    """What became of each file."""
    reader: Any = parquet_files if kind == "parquet" else arrow_files
    fates = []
    for number in range(TRIALS):
        draw = random.Random(f"{seed}.{number}")
        path.write_bytes(mutated(whole(kind, draw), draw))
        try:
            for shard in reader.scan(found(path), 0, 1000):
                for table in reader.tables(shard):
                    spans_of(table)
            fates.append("read")
        except (BadSource, StorageError) as error:
            fates.append(type(error).__name__)
    return fates


def whole(kind: str, draw: random.Random) -> bytes:
    columns: dict[str, Any] = {
        "id": list(range(60)),
        "text": ["a text that is no short one", None, ""] * 20,
        "named": pa.array(["x", "y", None] * 20).dictionary_encode(),
        "list": [["a", None], [], None] * 20,
        "struct": [{"a": 1, "b": "q"}] * 60,
        "map": pa.array([[("k", 1)]] * 60, pa.map_(pa.string(), pa.int64())),
        "when": pa.array(list(range(60)), pa.timestamp("ns", "UTC")),
        "view": pa.array(["a text that is no short one", None, ""] * 20, pa.string_view()),
    }
    sink = io.BytesIO()
    if kind == "parquet":
        parquet.write_table(
            pa.table(columns),
            sink,
            row_group_size=draw.choice([10, 60]),
            compression=draw.choice(["none", "snappy"]),
            use_dictionary=draw.choice([True, False]),
        )
        return sink.getvalue()
    columns["runs"] = pa.array(
        ["a", "a", "b"] * 20, pa.run_end_encoded(pa.int32(), pa.string())
    )
    columns["list view"] = pa.array([[1, 2], None, [3]] * 20, pa.list_view(pa.int32()))
    table = pa.table(columns)
    options = ipc.IpcWriteOptions(compression=draw.choice([None, "lz4"]))
    opened = draw.choice([ipc.new_file, ipc.new_stream])
    with opened(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=draw.choice([10, 60]))
    return sink.getvalue()


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, put in or taken out; at times the end is cut off."""
    found = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        at = draw.randrange(len(found))
        match draw.randrange(4):
            case 0:
                found[at] ^= 1 << draw.randrange(8)
            case 1:
                found[at : at + 4] = draw.choice(
                    [b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff" * 4]
                )
            case 2:
                del found[at : at + draw.randrange(1, 20)]
            case _:
                found[at:at] = draw.randbytes(draw.randrange(1, 20))
    return bytes(found[: draw.randrange(len(found))] if draw.random() < 0.05 else found)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    sys.stdout.write(" ".join(tried(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
