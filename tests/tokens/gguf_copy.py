"""Copies of a .gguf file whose metadata says something else: other kinds of vocabulary from one model."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from rowmill.tokens import gguf_file

_ALIGNMENT = 32


def write_copy(source: Path, target: Path, changed: dict[str, str | None]) -> Path:
    """Copy a model with other strings under some keys; None leaves a key out."""
    with (
        source.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
    ):
        _, version, num_tensors, num_pairs = struct.unpack_from("<4sIQQ", view)
        at, pairs = 24, []
        for _ in range(num_pairs):
            start = at
            key, at = gguf_file._string(view, at)
            (kind,) = struct.unpack_from("<I", view, at)
            _, at = gguf_file._value(view, at + 4, kind)
            pairs.append(_pair(view[start:at], key, changed))
        tensors, at = _tensor_list(view, at, num_tensors)
        kept = [pair for pair in pairs if pair]
        head = struct.pack("<4sIQQ", b"GGUF", version, num_tensors, len(kept))
        head += b"".join(kept) + tensors
        target.write_bytes(_padded(head) + view[at + (-at % _ALIGNMENT) :])
    return target


def write_metadata(target: Path, pairs: dict[str, Any]) -> Path:
    """A .gguf file of metadata alone: strings, integers, booleans, and lists of strings or integers."""
    body = b"".join(_string(key) + _value(value) for key, value in pairs.items())
    target.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs)) + body)
    return target


def _pair(raw: bytes, key: bytes, changed: dict[str, str | None]) -> bytes:
    name = key.decode()
    if name not in changed:
        return raw
    value = changed[name]
    return b"" if value is None else _string(name) + _value(value)


def _tensor_list(view: mmap.mmap, at: int, num_tensors: int) -> tuple[bytes, int]:
    start = at
    for _ in range(num_tensors):
        _, at = gguf_file._string(view, at)
        (dimensions,) = struct.unpack_from("<I", view, at)
        at += 4 + 8 * dimensions + 4 + 8
    return view[start:at], at


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    kind = 8 if isinstance(value[0], str) else 5
    body = b"".join(_string(v) if kind == 8 else struct.pack("<i", v) for v in value)
    return struct.pack("<IIQ", 9, kind, len(value)) + body


def _padded(head: bytes) -> bytes:
    return head + bytes(-len(head) % _ALIGNMENT)
