"""Kill a process at each of its steps, and look at what it left; run as a program by test_local.py.

A step is a call of a C function, seen just before and just after it: every write, sync, link and rename
lies between two of them. Usage: kill_points.py FOLDER ACT; a JSON line a step on stdout.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from rowmill.storage import LocalStorage, NotThere

OLD = b"old" * 10
NEW = b"new line\n" * 5000
NAME = "deep/folder/name"


def create(storage: LocalStorage) -> None:
    storage.create(NAME, NEW)


def replace(storage: LocalStorage) -> None:
    storage.replace(NAME, NEW)


def swap(storage: LocalStorage) -> None:
    found = storage.read_versioned(NAME)
    storage.swap(NAME, NEW, found[1] if found else "")


def append(storage: LocalStorage) -> None:
    appender = storage.appender(NAME)
    for start in range(0, len(NEW), 9000):
        appender.write(NEW[start : start + 9000])
    appender.sync()
    appender.close()


ACTS: dict[str, Callable[[LocalStorage], None]] = {
    "create": create,
    "replace": replace,
    "swap": swap,
    "append": append,
}


def arm(step: int) -> None:
    """End this process by SIGKILL at its `step`-th step from here."""
    left = step

    def count(frame: FrameType, event: str, what: object) -> None:
        nonlocal left
        if event in {"c_call", "c_return"}:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)


def killed_at(step: int, act: Callable[[LocalStorage], None], storage: LocalStorage) -> bool:
    """Whether a child of ours was killed at that step before it had done."""
    pid = os.fork()
    if pid == 0:
        arm(step)
        act(storage)
        sys.setprofile(None)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def main(root: Path, name: str) -> None:
    for step in range(1, 2000):
        storage = LocalStorage(str(root / f"{step}"))
        if name in {"replace", "swap"}:
            storage.create(NAME, OLD)
        was_killed = killed_at(step, ACTS[name], storage)
        try:
            content = storage.read(NAME)
        except NotThere:
            content = None
        seen = {None: "absent", OLD: "old", NEW: "new"}.get(content, "other")
        if name == "append" and content is not None and NEW.startswith(content):
            seen = "beginning" if len(content) < len(NEW) else "new"
        before = {p.name for p in storage.root.rglob(".tmp-*")}
        swept = storage.sweep()
        line = {
            "killed": was_killed,
            "seen": seen,
            "listed": storage.list(""),
            "left": len(before),
            "swept": swept,
            "still_left": len([*storage.root.rglob(".tmp-*")]),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        if not was_killed:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
