"""An image or a piece of audio of a row: where it comes from, and what is known of it.

Knows nothing of: rows, formats, how it is read.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MediaKind = Literal["image", "audio"]
Origin = Literal["inline", "path", "url"]
Form = Literal["url", "audio"]

MARK = b"\0"
"""Stands in the JSON text that an endpoint is sent in the place of each: no JSON text holds such a byte."""


class Media(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One of a row's images or pieces of audio."""

    kind: MediaKind
    origin: Origin
    field: str
    """Where it stands in its row, as `messages[0].content[1]`."""
    where: str = ""
    """The path or URL; empty where the row holds it itself."""
    content: bytes = b""
    """Of those in the row: the file's bytes."""
    form: Form = "url"
    """How an endpoint is told: a URL in a text, or an object with `data` and `format`."""
    digest: str = ""
    """SHA-256 of the file, in hex; empty of a URL: what it names is read once the row is asked."""
    tokens: int = 0
    """What it takes of a prompt, about."""
    is_exact: bool = False
    """Whether the model's own rule says so."""

    @property
    def identity(self) -> str:
        """What makes two of them the same."""
        return self.digest or self.where
