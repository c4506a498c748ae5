"""What killed runs left on this machine -> findings: engines without a parent, sockets, records.

Promises: nothing is ended, nothing is removed.
Knows nothing of: runs beyond their records of engines.
Source: vLLM's engine and its front end talk over sockets named by a UUID in the temporary folder; who is killed leaves them.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rowmill import rundir
from rowmill.doctor.finding import Finding, bad, ok
from rowmill.engines import orphans
from rowmill.storage.addresses import is_remote

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
VLLM = re.compile(r"VLLM::")
MOST_NAMED = 3


def look_behind(output: str) -> Iterator[Finding]:
    """Orphans, here and of the run at an output."""
    groups = orphans.strays()
    if groups:
        named = " ".join(f"-{pid}" for pid in groups[:MOST_NAMED])
        yield bad(
            "orphans",
            f"{len(groups)} engine{'' if len(groups) == 1 else 's'} whose rowmill is gone still hold memory",
            f"`kill -9 -- {named}`",
        )
    others = [pid for pid in _vllm_orphans() if os.getpgid(pid) not in groups]
    if others:
        named = " ".join(map(str, others[:MOST_NAMED]))
        yield bad(
            "orphans",
            f"vLLM processes without a parent: {named}",
            f"`kill -9 {named}`, if they are yours",
        )
    if not groups and not others:
        yield ok("orphans", "no engine without a parent")
    yield from _sockets()
    yield from _records(output)


def _vllm_orphans() -> Iterator[int]:
    """Processes that vLLM started and whose parent is gone."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "stat").read_text("utf-8", "replace")
            except OSError:
                continue  # ended just now
            name, _, rest = text.partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            if VLLM.match(name) and parent == "1" and state not in "ZX":
                yield int(entry.name)


def _sockets() -> Iterator[Finding]:
    folder = Path(tempfile.gettempdir())
    dead = dead_sockets(folder)
    if dead:
        # A name in a folder is all that is left: nothing waits for it, and no memory is held.
        yield ok(
            "sockets",
            f"{len(dead):,} in `{folder}` that nobody listens on, as vLLM leaves them when it is killed; they do no harm",
        )


def dead_sockets(folder: Path) -> list[Path]:
    """Sockets named by a UUID that no process has."""
    try:
        listened = {
            words[7]
            for line in Path("/proc/net/unix").read_text("utf-8", "replace").splitlines()[1:]
            if len(words := line.split()) > 7
        }
    except OSError:
        return []
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            is_dead = UUID.fullmatch(entry.name) and entry.path not in listened
            if is_dead and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                found.append(Path(entry.path))
    return sorted(found)


def _records(output: str) -> Iterator[Finding]:
    """Engines that the run at the output notes: the next start ends them."""
    folder = Path(output).expanduser() / rundir.ENGINES
    if is_remote(output) or not folder.is_dir():
        return
    alive = [path for path in folder.glob("*.json") if orphans.is_alive(path)]
    if alive:
        yield ok(
            "run",
            f"{len(alive)} of its engines live: it is at work, or its next start ends them",
        )
