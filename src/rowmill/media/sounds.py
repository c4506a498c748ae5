"""Bytes -> what a piece of audio is, told by its head; or its samples.

Promises: one that would unpack to more than is allowed is refused before it is unpacked; whatever a decoder raises is the
row's error; channels are mixed into one.
Knows nothing of: where bytes come from.
Memory: one piece of audio.
Source: soundfile 0.13 and later (libsndfile): WAV, FLAC, OGG, MP3.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from rowmill.errors import BadMedia, MissingExtra
from rowmill.media.pictures import Facts

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
        return Facts(f"audio/{_MIMES[file.format]}", seconds=file.frames / file.samplerate)


def decode(content: bytes, field: str, *, max_audio_s: float) -> Samples:
    """Samples of one channel, and their rate.

    Raises:
        BadMedia: it is none, is broken, or would be too long.
    """
    with _opened(content, field, max_audio_s) as file:
        try:
            samples = file.read(dtype="float32", always_2d=True)
        except (RuntimeError, ValueError, TypeError) as error:
            reason = f"`{field}` is {file.format} audio that breaks off or is damaged"
            raise BadMedia(reason=reason) from error
        if not len(samples):
            raise BadMedia(reason=f"`{field}` is audio without a single sample")
        return samples.mean(axis=1, dtype=np.float32), int(file.samplerate)


def _opened(content: bytes, field: str, max_audio_s: float) -> Any:
    sound = library()
    try:
        file = sound.SoundFile(io.BytesIO(content))
    except (RuntimeError, ValueError, TypeError) as error:
        what = "is empty" if not content else "is no audio that can be read"
        reason = f"`{field}` {what} ({len(content):,} bytes), expected WAV, FLAC, OGG or MP3"
        raise BadMedia(reason=reason) from error
    seconds = file.frames / max(file.samplerate, 1)
    if file.format not in _MIMES or seconds > max_audio_s:
        file.close()
        what = (
            f"is {file.format} audio, expected WAV, FLAC, OGG or MP3"
            if file.format not in _MIMES
            else f"is audio of {seconds:,.0f} s, allowed are {max_audio_s:g}; cut it, or raise `media.max_audio_s`"
        )
        raise BadMedia(reason=f"`{field}` {what}")
    return file
