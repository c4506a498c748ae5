"""Shard -> blocks of text: the bytes of one slice, whether it lies in its file or in a spool.

Promises: the bytes of the slice, all of them and no others, or an error that names the file.
Knows nothing of: lines, records.
Memory: one block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rowmill.errors import StorageError
from rowmill.read.opened import LocalFile, OpenFile, open_stream, state_of
from rowmill.read.steady import changed_file, steady, unreadable_file
from rowmill.rows import Shard

__all__ = ["CHUNK_BYTES", "blocks", "changed_file", "open_slice"]

CHUNK_BYTES = 1 << 20


def blocks(shard: Shard, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The text of a slice, in blocks of at most `chunk_bytes`.

    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    with open_slice(shard, chunk_bytes=chunk_bytes) as opened:
        yield from opened


@contextlib.contextmanager
def open_slice(
    shard: Shard,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    fits: Callable[[LocalFile, Shard, int], bool] | None = None,
) -> Iterator[Iterator[bytes]]:
    """The blocks of a slice, for one who may stop before the last and still asks whether all was well.

    Args:
        fits: told the open file, the slice and the file's size, says whether the slice still
            begins and ends where it should; not asked of spools, which have checksums, nor of
            objects, which have versions.
    Raises: StorageError, as `blocks` does.
    """
    try:
        start, stop = shard.frame or (shard.start, shard.stop)
        with (
            open_stream(shard.path, shard.version, start=start, stop=stop) as file,
            _steady(shard, file),
        ):
            if shard.frame is None:
                if (
                    fits
                    and isinstance(file, LocalFile)
                    and not fits(file, shard, file.state().size)
                ):
                    raise changed_file(shard)
                yield _blocks_of_file(file, shard, chunk_bytes)
            else:
                unpacked = _blocks_of_frame(file, shard, shard.frame, chunk_bytes)
                yield unpacked
                for _ in unpacked:
                    pass  # the checksum stands at the frame's end
    except FileNotFoundError as error:
        if shard.frame is None:
            raise unreadable_file(shard, error.strerror or str(error)) from error
        reason = (
            f"what was unpacked there of `{shard.name}` is gone; `rowmill run` as it was given"
            " unpacks it anew"
        )
        raise StorageError(path=shard.path, reason=reason) from error
    except OSError as error:
        raise unreadable_file(shard, error.strerror or str(error)) from error


def _damaged(shard: Shard) -> StorageError:
    reason = f"what was unpacked there of `{shard.name}` is damaged; delete that file"
    return StorageError(path=shard.path, reason=reason)


def _steady(shard: Shard, file: OpenFile) -> contextlib.AbstractContextManager[object]:
    if isinstance(file, LocalFile):
        return steady(shard, file.state)
    if shard.version or shard.frame:
        return contextlib.nullcontext()
    return steady(shard, lambda: state_of(shard.path))


def _blocks_of_file(file: OpenFile, shard: Shard, chunk_bytes: int) -> Iterator[bytes]:
    left = shard.stop - shard.start
    while left:
        block = file.read(min(chunk_bytes, left))
        if not block:
            raise changed_file(shard)
        left -= len(block)
        yield block


def _blocks_of_frame(
    file: OpenFile, shard: Shard, frame: tuple[int, int], chunk_bytes: int
) -> Iterator[bytes]:
    from rowmill.read.zstd import ZstdDecompressor, ZstdError

    packed_left = frame[1] - frame[0]
    left = shard.stop - shard.start
    unpacking = ZstdDecompressor()
    while not unpacking.eof:
        packed = b""
        if unpacking.needs_input:
            packed = file.read(min(CHUNK_BYTES, packed_left)) or b""
            if not packed:
                raise _damaged(shard)
            packed_left -= len(packed)
        try:
            block = unpacking.decompress(packed, min(chunk_bytes, left + 1))
        except ZstdError as error:
            raise _damaged(shard) from error
        left -= len(block)
        if left < 0:
            raise _damaged(shard)
        if block:
            yield block
    if left or packed_left or unpacking.unused_data:
        raise _damaged(shard)
