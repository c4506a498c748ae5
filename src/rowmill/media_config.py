"""`[media]`: images and audio of rows: where they may come from, and how much of them is read.

Promises: by default nothing is read but what stands in the rows themselves.
Knows nothing of: rows, engines.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from rowmill.part import Part

_HOST = re.compile(
    r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_-]+)*(:\d{1,5})?|\[[0-9a-f:.]+\](:\d{1,5})?"
)


class MediaConfig(Part):
    """`[media]`: images and audio beside the text of a row."""

    images: tuple[str, ...] = ()
    """Columns with an image for the user message that `prompt` makes, or with a list of them: a path, a URL, a `data:`
    URL, bytes of a table, or an object with `bytes` or `path`. They are put before the text, in this order."""
    audio: tuple[str, ...] = ()
    """The same with audio."""
    folder: str = ""
    """Folder that paths in rows begin from; no file outside of it is read. Empty: no path is read."""
    hosts: tuple[str, ...] = ()
    """Hosts that URLs in rows may name, as `images.example.org`, `*.example.org` or `HOST:PORT`; a redirect leads to one of
    them or is refused. Private addresses are refused unless they stand here themselves. Empty: no URL is read."""
    send: Literal["data", "url"] = "data"
    """What an endpoint is sent of an image with a URL: what was read from it, or the URL, to read it by itself."""
    max_bytes: int = Field(default=32 * 2**20, gt=0)
    """Most bytes of one file."""
    max_pixels: int = Field(default=50_000_000, gt=0)
    """Most pixels of one image. A small file may unpack to many: it is refused before it is unpacked."""
    max_audio_s: float = Field(default=600.0, gt=0)
    """Most seconds of one piece of audio, in the same way."""
    fetch_s: float = Field(default=30.0, gt=0)
    """Most seconds for what one URL names, over all tries."""
    fetch_tries: int = Field(default=3, ge=1)
    """Tries for one URL. What a server refuses for good (404) is not tried again."""
    threads: int | None = Field(default=None, gt=0)
    """Threads that read and decode ahead of an engine. None: as many as there are cores, 16 at most."""
    memory_mib: int = Field(default=512, gt=0)
    """MiB of decoded images and audio that may wait for an engine, of each engine process; a quarter of it keeps what may
    come again."""

    @field_validator("images", "audio", "hosts", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host.lower()):
                msg = f"`{host}` is no host; write `example.org`, `*.example.org` or `HOST:PORT`, without `https://` or a path"
                raise ValueError(msg)
        return tuple(host.lower() for host in hosts)
