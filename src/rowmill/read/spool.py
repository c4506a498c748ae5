"""Text -> a spool file: one zstd frame a slice, so that each can be read alone.

Promises: under its name lies a whole spool or none, whenever the process dies; frames have checksums;
it is on the disk once it is finished.
Knows nothing of: what the text says, who made it.
Memory: one block, and zstd's own (2 MiB).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from rowmill.errors import StorageError
from rowmill.storage.files import sync_folder

if TYPE_CHECKING:
    from rowmill.read.zstd import ZstdCompressor

_LEVEL = 1
"""As small as gzip makes it, at several times its speed."""


class Spool:
    """Takes text and puts it into frames."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._packing: ZstdCompressor | None = None
        self._begin = 0
        """Of the frame at hand."""
        self._num_bytes = 0

    def write(self, text: bytes | memoryview) -> None:
        """Add text to the frame at hand."""
        if len(text):
            self._put(self._frame().compress(text))

    def end_frame(self) -> tuple[int, int]:
        """Finish the frame at hand. Returns: its first byte and one past its last."""
        self._put(self._frame().flush())
        self._packing = None
        frame = self._begin, self._num_bytes
        self._begin = self._num_bytes
        return frame

    def _frame(self) -> ZstdCompressor:
        from rowmill.read.zstd import CompressionParameter, ZstdCompressor

        if self._packing is None:
            options: dict[int, int] = {
                CompressionParameter.compression_level: _LEVEL,
                CompressionParameter.checksum_flag: 1,
            }
            self._packing = ZstdCompressor(options=options)
        return self._packing

    def _put(self, packed: bytes) -> None:
        view = memoryview(packed)
        while view:
            written = self._file.write(view)
            view = view[written:]
            self._num_bytes += written


@contextmanager
def new_spool(folder: Path, name: str) -> Iterator[Spool]:
    """A spool that takes its name once the block ends well; one that lay there is replaced.

    Raises: StorageError where the disk refuses it.
    """
    draft = folder / f"{name}.draft"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileIO(draft, "w") as file:
            yield Spool(file)
            os.fsync(file.fileno())
        draft.replace(folder / name)
        sync_folder(folder)
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        raise StorageError(path=str(draft), reason=reason) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
