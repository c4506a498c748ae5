"""The real Prometheus, on 127.0.0.1: as it is installed, or as `make prometheus` laid it out."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LAID_OUT = Path(__file__).resolve().parents[2] / ".tools" / "usr" / "bin"
PATIENCE_S = 60.0


def program(name: str) -> str:
    """Path of `prometheus` or `promtool`; skips the test where it is not to be had."""
    found = shutil.which(name) or shutil.which(name, path=str(LAID_OUT))
    if found is None:
        pytest.skip(f"NOT TESTED: no `{name}` here; `make prometheus` brings it")
    return found


@contextmanager
def prometheus(folder: Path, page: str, rules: Path) -> Iterator[str]:
    """Root of a server that scrapes a page each second; ended by its pid."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "prometheus.yml"
    target = urllib.parse.urlsplit(page).netloc
    config.write_text(
        f"global: {{scrape_interval: 1s}}\nrule_files: ['{rules}']\nscrape_configs:\n"
        f"  - job_name: rowmill\n    static_configs: [{{targets: ['{target}']}}]\n"
    )
    command = [program("prometheus"), f"--config.file={config}", "--log.level=error"]
    command += [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder}/tsdb"]
    with subprocess.Popen(command) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def asked(root: str, query: str) -> list[dict[str, Any]]:
    """Series that answer a query; none while the server starts."""
    url = f"{root}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
    except urllib.error.URLError:
        return []
    return found


def awaited(root: str, query: str) -> list[dict[str, Any]]:
    """The same, asked until there is an answer."""
    until = time.monotonic() + PATIENCE_S
    while not (found := asked(root, query)):
        assert time.monotonic() < until, query
    return found
