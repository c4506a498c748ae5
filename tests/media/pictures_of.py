"""Files of images and audio, made here."""

from __future__ import annotations

import io
import struct
import wave
import zlib

from PIL import Image


def png(width: int = 8, height: int = 6, colour: tuple[int, int, int] = (200, 30, 10)) -> bytes:
    """One colour."""
    return encoded(Image.new("RGB", (width, height), colour), "PNG")


def encoded(image: Image.Image, kind: str) -> bytes:
    """The file of an image."""
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def bomb(width: int = 40_000, height: int = 40_000) -> bytes:
    """A PNG of a few kilobytes that would unpack to gigabytes."""

    def chunk(name: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(name + body)
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1 << 20), 9)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [chunk(b"IHDR", head), chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    )


def wav(seconds: float = 0.5, rate: int = 8000, channels: int = 1) -> bytes:
    """Silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(bytes(2 * channels * int(seconds * rate)))
    return file.getvalue()
