"""Work in processes of its own: a request on stdin, a reply on stdout.

Promises: as many processes at once as there are cores; a child ends with its parent; its StorageError is raised here.
Knows nothing of: what the work is.
Memory: requests and replies.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from rowmill.errors import StorageError
from rowmill.flow import die_with_parent

INLINE_BYTES = 32 * 2**20
"""Input under this is worked on in this process: a further one costs more than it saves."""


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0))


def run_apart(module: str, requests: Sequence[bytes], *, where: str) -> list[bytes]:
    """The replies of `python -m module` to the requests, in order.

    Raises: StorageError.
    """
    give_back()
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(lambda request: _ask(module, request, where), requests))


def give_back() -> None:
    """Give memory that is free in this process back to the machine: others need as much now as this one did before."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    trim = getattr(
        ctypes.CDLL(None), "malloc_trim", None
    )  # glibc's; other libraries give back by themselves
    if trim is not None:
        trim(0)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of cycles: rows have none, and it looks at all that is there each few thousand of them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def answer(work: Callable[[bytes], bytes]) -> int:
    """What such a process does; its exit status."""
    # A part written later, after a new start published anew, would stand in place of that one's.
    die_with_parent()
    try:
        with uncollected():
            reply = work(sys.stdin.buffer.read())
    except StorageError as error:
        sys.stdout.write(f"{error.fields['path']}\n{error.fields['reason']}")
        return 3
    sys.stdout.buffer.write(reply)
    return 0


def _ask(module: str, request: bytes, where: str) -> bytes:
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, check=False)
    if done.returncode == 0:
        return done.stdout
    path, _, reason = done.stdout.decode(errors="replace").partition("\n")
    if not reason:
        reason = f"publishing ended with status {done.returncode}"
    raise StorageError(path=path or where, reason=reason)
