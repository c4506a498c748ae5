"""Bytes -> compressed bytes, piece by piece.

Promises: the same pieces give the same bytes, whenever and wherever they are written.
Knows nothing of: what the bytes mean.
Memory: the compressor's window, under 8 MiB.
"""

from __future__ import annotations

import sys
import zlib
from typing import Protocol

from rowmill.write.form import Compression

if sys.version_info >= (3, 14):  # pragma: no cover
    from compression import zstd
else:
    from backports import zstd

GZIP_LEVEL = 6
ZSTD_LEVEL = 3
_GZIP_WBITS = 31
"""zlib writes a gzip header by this, with no time of writing in it."""


class Packer(Protocol):
    """A stream that is being compressed."""

    def pack(self, content: bytes) -> bytes:
        """What can be written after this piece; often nothing."""
        ...

    def finish(self) -> bytes:
        """The end of the stream."""
        ...


def open_packer(compression: Compression) -> Packer:
    """Begin a compressed stream."""
    if compression == "gzip":
        return _Gzip()
    return _Zstd() if compression == "zstd" else _Plain()


class _Plain:
    def pack(self, content: bytes) -> bytes:
        return content

    def finish(self) -> bytes:
        return b""


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_WBITS)

    def pack(self, content: bytes) -> bytes:
        return self._stream.compress(content)

    def finish(self) -> bytes:
        return self._stream.flush()


class _Zstd:
    def __init__(self) -> None:
        self._stream = zstd.ZstdCompressor(ZSTD_LEVEL)

    def pack(self, content: bytes) -> bytes:
        return self._stream.compress(content)

    def finish(self) -> bytes:
        return self._stream.flush()
