"""What the tests of leases share: a clock that is told to go on, and fresh places to lease in."""

import secrets
from pathlib import Path

from obstore.store import MemoryStore

from rowmill.storage import ObjectStorage, Storage, open_storage
from tests.servers.s3_server import S3Server


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def fresh_local(folder: Path) -> Storage:
    return open_storage(str(folder / "out"))


def fresh_memory(folder: Path) -> Storage:
    return ObjectStorage(f"memory://{folder.name}", MemoryStore())


def fresh_s3(server: S3Server) -> Storage:
    prefix = f"leases/{secrets.token_hex(4)}"
    return ObjectStorage(f"s3://leases/{prefix}", server.store("leases", prefix))
