"""Storage -> nothing, or a refusal: can it be written, and does it keep its conditions?

Promises: nothing is left behind, neither file nor folder, whichever way it ends.
Knows nothing of: what will be written.
Memory: a few bytes.
"""

from __future__ import annotations

import contextlib
import os
import secrets

from rowmill.errors import BadOutput, StorageError
from rowmill.storage.contract import Storage


def probe(storage: Storage) -> None:
    """Try every promise that a run leans on, on an object of its own.

    Raises: BadOutput, naming the place and the reason.
    """
    # Hidden, so never listed, and not of a name that another start sweeps away as half-written.
    name = f".probe-{os.getpid()}-{secrets.token_hex(4)}"
    with storage.traceless():
        try:
            broken = _broken_promise(storage, name)
        except StorageError as error:
            reason = f"cannot be written: {error.fields['reason']}"
            sentence = f"output `{storage.url}` {reason}; name a folder that can"
            raise BadOutput(reason=sentence) from error
        finally:
            with contextlib.suppress(StorageError):
                storage.remove(name)
    if broken:
        sentence = (
            f"output `{storage.url}` does not keep conditions: {broken};"
            " two workers could overwrite each other, name another output"
        )
        raise BadOutput(reason=sentence)


def _broken_promise(storage: Storage, name: str) -> str:
    """The first promise found broken, in words; empty where all hold."""
    if not storage.create(name, b"1"):
        return "create-only was refused for an object that nobody had made"
    if storage.create(name, b"2"):
        return "create-only wrote over an object that was there"
    found = storage.read_versioned(name)
    if found is None or found[0] != b"1":
        return "an object just written does not read as it was written"
    if storage.swap(name, b"3", found[1]) is None:
        return "compare-and-swap was refused for an object that had not changed"
    if storage.swap(name, b"4", found[1]) is not None:
        return "compare-and-swap wrote over an object that had changed"
    return ""
