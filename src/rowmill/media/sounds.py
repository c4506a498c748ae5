"""Bytes -> what a piece of audio is, told by its head; or its samples.

Promises: one that would unpack to more than is allowed is refused before it is unpacked; whatever a decoder raises is the
row's error; channels are mixed into one, and brought to the rate that is asked for.
Knows nothing of: where bytes come from.
Memory: one piece of audio in one channel, however many it has.
Source: soundfile 0.13 and later (libsndfile): WAV, FLAC, OGG, MP3.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from rowmill.errors import BadMedia, MissingExtra
from rowmill.media.pictures import Facts
from rowmill.media.resample import resampled

MOST_RATE = 192_000
"""Samples a second. Nobody records at more; a file that says so would unpack to gigabytes."""
_BLOCK = 1 << 16
_MISCOUNTED = 64
"""So many bytes too few are a mistake of who wrote the head, and nothing is lost."""
_UNTOLD = 0x7FFF_0000
"""What is written where nobody knew the length yet, as in a pipe, is as much or more."""
_MIMES = {"WAV": "wav", "WAVEX": "wav", "MP3": "mp3", "FLAC": "flac", "OGG": "ogg"}
Samples = tuple[npt.NDArray[np.float32], int]


def library() -> Any:
    """Module `soundfile`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:
        raise MissingExtra(what="`soundfile`", extra="media") from error
    return soundfile


def look(content: bytes, field: str, *, max_audio_s: float) -> Facts:
    """What a piece of audio is, by its head.

    Raises:
        BadMedia: it is none, or one that is too long.
    """
    with _opened(content, field, max_audio_s) as file:
        mime = f"audio/{_MIMES[file.format]}"
        return Facts(mime, samples=file.frames, rate=file.samplerate)


def decode(content: bytes, field: str, *, max_audio_s: float, rate: int = 0) -> Samples:
    """Samples of one channel, and their rate: `rate`, or without it the file's own.

    Raises:
        BadMedia: it is none, is broken, or would be too long.
    """
    with _opened(content, field, max_audio_s) as file:
        failed: Exception | None = None
        samples, num = np.zeros(file.frames, np.float32), 0
        try:
            for block in file.blocks(_BLOCK, dtype="float32", always_2d=True):
                samples[num : num + len(block)] = block.mean(axis=1)
                num += len(block)
        except (RuntimeError, ValueError, TypeError) as error:
            failed = error
        samples = samples[:num]
        if failed or not num or not np.isfinite(samples).all():
            reason = f"`{field}` is {file.format} audio that breaks off or is damaged"
            raise BadMedia(reason=reason) from failed
        own = int(file.samplerate)
        return (resampled(samples, own, rate), rate) if rate else (samples, own)


def _opened(content: bytes, field: str, max_audio_s: float) -> Any:
    sound = library()
    try:
        file = sound.SoundFile(io.BytesIO(content))
    except (RuntimeError, ValueError, TypeError) as error:
        what = "is empty" if not content else "is no audio that can be read"
        reason = f"`{field}` {what} ({len(content):,} bytes), expected WAV, FLAC, OGG or MP3"
        raise BadMedia(reason=reason) from error
    mistake = _mistake(file, content, max_audio_s)
    if mistake:
        file.close()
        raise BadMedia(reason=f"`{field}` is {mistake}")
    return file


def _mistake(file: Any, content: bytes, max_audio_s: float) -> str:
    """What is wrong with audio by its head; empty where nothing is."""
    seconds = file.frames / max(file.samplerate, 1)
    if file.format not in _MIMES:
        return f"{file.format} audio, expected WAV, FLAC, OGG or MP3"
    if seconds > max_audio_s:
        return f"audio of {seconds:,.0f} s, allowed are {max_audio_s:g}; cut it, or raise `media.max_audio_s`"
    if not 0 < file.samplerate <= MOST_RATE:
        return f"audio of {file.samplerate:,} samples a second, allowed are {MOST_RATE:,}; resample it"
    if _is_cut(content):
        return "WAV audio that breaks off"
    return "" if file.frames > 0 else "audio without a single sample"


def _is_cut(content: bytes) -> bool:
    """Whether a WAV holds less than its head says: libsndfile would play what is left, as if that were all."""
    at = 12 if content.startswith(b"RIFF") else len(content)
    while at + 8 <= len(content):
        name, size = content[at : at + 4], int.from_bytes(content[at + 4 : at + 8], "little")
        if name == b"data":
            return size < _UNTOLD and at + 8 + size > len(content) + _MISCOUNTED
        at += 8 + size + size % 2
    return False
