"""Files of audio that sound of something, made here."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import soundfile


def wave(hz: float, num: int, rate: int) -> npt.NDArray[np.float32]:
    """Samples of a tone, half as loud as can be."""
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(num) / rate)).astype(np.float32)


def tone(
    hz: float = 440.0,
    num: int = 16_000,
    *,
    rate: int = 16_000,
    channels: int = 1,
    kind: str = "WAV",
) -> bytes:
    """The file of a tone of `num` samples; where there are two channels or more, the second is its opposite, half as loud."""
    one = wave(hz, num, rate)
    many = np.stack([one, one * -0.5, *[one] * (channels - 2)], axis=1)[:, :channels]
    return encoded(many, rate, kind)


def encoded(
    samples: npt.NDArray[np.float32], rate: int, kind: str = "WAV", **how: str
) -> bytes:
    """The file of samples: one channel, or a column for each."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, **how)
    return file.getvalue()
