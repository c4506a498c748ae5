"""What an adapter is given of an image or a piece of audio."""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill.media_item import MediaKind


class Loaded(msgspec.Struct, frozen=True):
    """An image or a piece of audio, read and decoded."""

    kind: MediaKind
    digest: str
    """SHA-256 of the file, in hex: equal for equal files."""
    value: Any
    """An image of Pillow's, in RGB; or samples (float32, one channel) and their rate."""
    num_bytes: int
    """Memory held."""
    url: bytes = b""
    """For endpoints, in place of `value`: JSON text of what stands in the body."""
