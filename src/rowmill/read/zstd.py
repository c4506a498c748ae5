"""Zstandard: the standard library's module where there is one (Python 3.14), its backport before.

Promises: one name for both.
Knows nothing of: files.
Memory: none.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )

__all__ = ["CompressionParameter", "ZstdCompressor", "ZstdDecompressor", "ZstdError"]
