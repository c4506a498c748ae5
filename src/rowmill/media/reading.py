"""A Media -> its bytes, wherever they are.

Promises: nothing outside of `media.folder` is read, links that lead out of it included; a device or pipe is never opened;
never more than `max_bytes` are taken.
Knows nothing of: formats.
Memory: one file.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from rowmill.errors import BadMedia
from rowmill.media_config import MediaConfig
from rowmill.media_item import Media


def read(media: Media, config: MediaConfig) -> bytes:
    """The file's bytes.

    Raises:
        BadMedia: it is not there, may not be read, is too large, or is not what was looked at.
        NotFetched: its URL gave nothing.
    """
    if media.origin == "url":
        # Only now: it brings TLS, which takes longer to import than all else here, and most jobs have no URLs.
        from rowmill.media.fetch import fetch

        return fetch(media.where, media.field, config)
    content = media.content if media.origin == "inline" else _file(media, config)
    if len(content) > config.max_bytes:
        raise _too_large(media.field, len(content), config)
    if media.digest and media.origin == "path" and digest_of(content) != media.digest:
        reason = f"`{media.field}`: the file was changed while the run was on"
        raise BadMedia(reason=reason)
    return content


def digest_of(content: bytes) -> str:
    """What a file is known by."""
    return hashlib.sha256(content).hexdigest()


def _file(media: Media, config: MediaConfig) -> bytes:
    folder = Path(config.folder).expanduser().resolve()
    try:
        path = (folder / media.where).resolve(strict=True)
        if not path.is_relative_to(folder):
            reason = f"`{media.field}` is a path that leads out of `media.folder`"
            raise BadMedia(reason=reason)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            told = os.fstat(file.fileno())
            if not stat.S_ISREG(told.st_mode):
                raise BadMedia(reason=f"`{media.field}` is the path of what is no file")
            if told.st_size > config.max_bytes:
                raise _too_large(media.field, told.st_size, config)
            return file.read(config.max_bytes + 1)
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or "no file can have this name"
        reason = f"`{media.field}` is a path that cannot be read: {why.lower()}"
        raise BadMedia(reason=reason) from error


def _too_large(field: str, size: int, config: MediaConfig) -> BadMedia:
    reason = (
        f"`{field}` has {size:,} bytes, allowed are {config.max_bytes:,};"
        " make it smaller, or raise `media.max_bytes`"
    )
    return BadMedia(reason=reason)
