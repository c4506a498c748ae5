"""Address, pattern or prefix of an object store -> the objects it stands for, and how they are named.

Promises: what a path of this machine would stand for: an object, what lies below a prefix, or what a pattern
matches; `*` stays inside a part of the name, `**` does not.
Knows nothing of: which of them are wanted, what is in them.
Memory: a record an object below the part of a pattern without wildcards.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from rowmill.storage.addresses import parse_address
from rowmill.storage.remote import RemoteObject, list_objects, look


class Objects(NamedTuple):
    """What an address stands for."""

    root: str
    """Folder that names are relative to; empty for one object."""
    by_name: dict[str, RemoteObject]
    asks_hidden: bool = False
    """Whether the pattern itself names hidden parts."""


def objects_of(url: str) -> Objects | None:
    """The objects of an address; None where there are none.

    Raises: OSError where the store does not answer; ConfigError where it is no address.
    """
    address = parse_address(url)
    is_folder = url.endswith("/") or not address.key
    if not is_folder:
        try:
            found = look(address.url)
        except FileNotFoundError:
            pass
        else:
            return Objects("", {address.key.rpartition("/")[2]: found})
        if glob.has_magic(address.key):
            return _matching(url)
    root = address.url.rstrip("/")
    return _below(root, list_objects(root))


def fixed_root(url: str) -> str:
    """The prefix that a pattern names before its first wildcard."""
    address = parse_address(url)
    parts = address.key.split("/")
    at = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return f"{address.scheme}://{address.bucket}/{'/'.join(parts[:at])}".rstrip("/")


def reaches(given: str, folder: str) -> bool:
    """Whether what lies below the address `folder` may be among the objects that `given` stands for."""
    asked, below = parse_address(given), parse_address(folder)
    if (asked.scheme, asked.bucket) != (below.scheme, below.bucket):
        return False
    pattern, parts = _parts(asked.key), _parts(below.key)
    if not glob.has_magic(asked.key):
        return parts[: len(pattern)] == pattern
    return _may_fit_below(parts, pattern)


def _parts(key: str) -> list[str]:
    return key.split("/") if key else []


def _may_fit_below(folder: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern or pattern[0] == "**" or not folder:
        return bool(pattern)
    return fnmatchcase(folder[0], pattern[0]) and _may_fit_below(folder[1:], pattern[1:])


def _below(root: str, found: Sequence[RemoteObject]) -> Objects | None:
    by_name = {one.url[len(root) + 1 :]: one for one in found}
    # What consoles of stores make to show an empty folder.
    by_name = {name: one for name, one in by_name.items() if name and not name.endswith("/")}
    return Objects(root, by_name) if by_name else None


def _matching(url: str) -> Objects | None:
    root = fixed_root(url)
    pattern = parse_address(url).url[len(root) + 1 :].split("/")
    found = _below(root, list_objects(root))
    if found is None:
        return None
    by_name = {
        name: one for name, one in found.by_name.items() if _fits(name.split("/"), pattern)
    }
    asks_hidden = any(part.startswith((".", "_")) for part in pattern)
    return Objects(root, by_name, asks_hidden) if by_name else None


def _fits(name: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "**":
        rest = range(len(name) + 1) if len(pattern) > 1 else range(len(name), len(name) + 1)
        return any(_fits(name[at:], pattern[1:]) for at in rest)
    return bool(name) and fnmatchcase(name[0], pattern[0]) and _fits(name[1:], pattern[1:])
