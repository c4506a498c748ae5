"""Where a run's output lies: local folders and object stores behind one contract.

Promises: the same words for every place (contract.py); a place that cannot keep them is refused (probe.py).
Knows nothing of: names in a run folder (see rundir.py).
Memory: one object at a time.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rowmill.errors import ConfigError
from rowmill.storage.addresses import attempts_of, is_remote, open_store, parse_address
from rowmill.storage.contract import AlreadyThere, Appender, NotThere, Storage, check_name
from rowmill.storage.local import LocalStorage
from rowmill.storage.objects import ObjectStorage
from rowmill.storage.probe import probe

if TYPE_CHECKING:
    from obstore.store import MemoryStore

__all__ = [
    "AlreadyThere",
    "Appender",
    "LocalStorage",
    "NotThere",
    "ObjectStorage",
    "Storage",
    "address_of",
    "check_name",
    "open_storage",
    "place_of",
    "probe",
]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


def open_storage(url: str) -> Storage:
    """The place `url` names: a folder, a prefix of an object store, or `memory://NAME` inside this process.

    Touches nothing.

    Raises: ConfigError for an empty name, another scheme, or an address that is none.
    """
    if is_remote(url):
        address = parse_address(url)
        return ObjectStorage(
            address.url,
            open_store(*address),
            bulk=open_store(*address, is_bulk=True),
            attempts=attempts_of(address.scheme, address.bucket),
        )
    scheme = _SCHEME.fullmatch(url)
    if scheme is None:
        if not url.strip() or "\0" in url:
            raise ConfigError(reason=f"`output.path` is {url!r}; name a folder to write to")
        return LocalStorage(url)
    if scheme[1].lower() == "memory" and scheme[2]:
        return ObjectStorage(url, _memory_store(scheme[2]))
    reason = (
        f"output `{url}`: `{scheme[1]}://` is no place that results can go to; name a folder,"
        " or `s3://`, `gs://` or `az://BUCKET/NAME`"
    )
    raise ConfigError(reason=reason)


def place_of(file: str) -> tuple[Storage, str]:
    """The folder, or the prefix of a store, in which a file lies, and its name there. Touches nothing.

    Raises: ConfigError for an address that is none.
    """
    if is_remote(file):
        folder, _, name = parse_address(file).url.rpartition("/")
        return open_storage(folder), name
    path = Path(file)
    return LocalStorage(str(path.parent)), path.name


def address_of(storage: Storage) -> str:
    """What another process opens the same place by; empty where it lies in this process alone."""
    if isinstance(storage, LocalStorage):
        return str(storage.root)
    return storage.url if is_remote(storage.url) else ""


@functools.cache
def _memory_store(name: str) -> MemoryStore:
    """One store a name, so that all parts of the process see the same objects."""
    from obstore.store import MemoryStore

    return MemoryStore()
