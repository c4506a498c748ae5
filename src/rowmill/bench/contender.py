"""Tasks on standard input -> runs on standard output: `python -m rowmill.bench.contender RESIDENT SPEC`.

Promises: the engine is opened once; whatever libraries print goes to standard error; when the parent is gone,
so is this process with all it started.
Knows nothing of: rounds, tables.
Memory: that of the contender.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import msgspec

from rowmill.bench.contenders import Contender, open_contender
from rowmill.bench.records import Failed, Ready, Run, Spec, Task

_MOST_WORDS = 600


def main(resident: str, spec: str) -> int:
    """Open, answer tasks, close."""
    # Engines write to file descriptor 1 as they please, and so do their children.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), name="tasks", daemon=True).start()
    try:
        contender = open_contender(
            resident, msgspec.json.decode(Path(spec).read_bytes(), type=Spec)
        )
    # Told to the parent: what a library raises cannot be listed.
    except Exception as error:
        _say(out, Failed(reason=_words(error)))
        return 1
    _say(out, Ready(about=contender.about))
    while (task := tasks.get()).name:
        _say(out, _run(contender, task))
    contender.close()
    return 0


def _run(contender: Contender, task: Task) -> Run | Failed:
    try:
        return contender.run(task)
    except Exception as error:  # the same
        return Failed(reason=_words(error))
    finally:
        for path in Path(task.out).parent.glob(f"{Path(task.out).name}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _listen(tasks: queue.SimpleQueue[Task]) -> None:
    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=Task)
        tasks.put(task)
        if not task.name:
            return
    # The parent is gone: a run that is under way is of no use, nor are engines that hold a GPU.
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def _say(out: BinaryIO, message: Ready | Run | Failed) -> None:
    with contextlib.suppress(BrokenPipeError):
        out.write(msgspec.json.encode(message) + b"\n")
        out.flush()


def _words(error: Exception) -> str:
    import traceback

    traceback.print_exception(error)
    return " ".join(f"{type(error).__name__}: {error}".split())[:_MOST_WORDS]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
