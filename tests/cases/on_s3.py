"""Runs whose input and output lie in an S3 bucket: addresses, what lies there, the same beside it on a disk."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases.command import Arguments, Finished, check_whole, job
from tests.cases.compare import Record
from tests.servers.s3_server import S3Server

BUCKET = "cases"


@dataclass(frozen=True)
class Prefix:
    """A prefix of its own in the bucket of the cases."""

    server: S3Server
    key: str

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/{self.key}"

    @property
    def store(self) -> Any:
        return self.server.store(BUCKET, self.key)

    def below(self, name: str) -> Prefix:
        """A prefix inside this one."""
        return Prefix(self.server, f"{self.key}/{name}")

    def names(self, beginning: str = "") -> list[str]:
        """What lies there, in order."""
        found = [one["path"] for chunk in self.store.list() for one in chunk]
        return sorted(name for name in found if name.startswith(beginning))

    def put(self, name: str, content: bytes) -> None:
        self.store.put(name, content)

    def get(self, name: str) -> bytes:
        return bytes(self.store.get(name).bytes())

    def put_folder(self, folder: Path) -> None:
        """The files of a folder as objects."""
        for file in sorted(folder.iterdir()):
            self.put(file.name, file.read_bytes())

    def copied(self, folder: Path) -> Path:
        """Everything that lies there, as files: so a run is looked at as one on a disk is."""
        for name in self.names():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.get(name))
        return folder


def new_prefix(server: S3Server) -> Prefix:
    server.store(BUCKET).put("made", b"")
    return Prefix(server, secrets.token_hex(4))


def s3_job(
    source: Path | Sequence[str], out: Prefix, *options: str, **kwargs: Any
) -> Arguments:
    """Arguments of a job that writes to the bucket; `source`: a path of this machine, or addresses."""
    if isinstance(source, Path):
        return job(source, None, "-o", out.url, *options, **kwargs)
    return job([], None, *source, "-o", out.url, *options, **kwargs)


def whole_records(finished: Finished, out: Prefix, folder: Path, num_rows: int) -> list[Record]:
    """See that a run kept the contract; its records."""
    return check_whole(finished, out.copied(folder), num_rows)
