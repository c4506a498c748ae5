"""Bytes -> what an image is, told by its head; or the image itself.

Promises: only formats of a list are read, told by their first bytes; one that would unpack to more pixels than are allowed is
refused before it is unpacked; whatever a decoder raises is the row's error; of animations the first image is taken,
and it stands as a camera says it was held.
Knows nothing of: where bytes come from.
Memory: one image.
Source: Pillow 11 to 13. `open` reads the head, `load` the pixels; a decoder lets other threads run.
"""

from __future__ import annotations

import io
import logging
import struct
import warnings
from typing import TYPE_CHECKING, Any

import msgspec

from rowmill.errors import BadMedia, MissingExtra

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
"""No format that runs a program of its own (EPS), or none that models are shown."""
_MIMES = {"MPO": "image/jpeg"}  # of a camera with two lenses: read as JPEG
_BROKEN = (OSError, ValueError, SyntaxError, TypeError, IndexError, KeyError, struct.error)
"""What Pillow's readers raise on bytes that are not what they seem; SyntaxError is its own word for a bad head."""
_BROKEN_MORE = (EOFError, OverflowError, MemoryError, ArithmeticError, AttributeError)


class Facts(msgspec.Struct, frozen=True):
    """What the head of a file says."""

    mime: str
    width: int = 0
    height: int = 0
    samples: int = 0
    """Of each channel."""
    rate: int = 0
    """Samples a second."""

    @property
    def seconds(self) -> float:
        """How long it sounds; 0 of an image."""
        return self.samples / max(self.rate, 1)


def library() -> Any:
    """Pillow's module `Image`, its own limit of pixels off: ours is stated in the job.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra(what="`pillow`", extra="media") from error
    Image.MAX_IMAGE_PIXELS = None
    # What a damaged file makes it warn of would stand among the words of the run; what counts is told with the row.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    return Image


def look(content: bytes, field: str, *, max_pixels: int) -> Facts:
    """What an image is, by its head.

    Raises:
        BadMedia: it is none, or one that is too large.
    """
    with _opened(content, field, max_pixels) as image:
        return Facts(_mime(image), *image.size)


def decode(content: bytes, field: str, *, max_pixels: int) -> Image:
    """The image, in RGB.

    Raises:
        BadMedia: it is none, is broken, or would be too large.
    """
    from PIL import ImageOps

    with _opened(content, field, max_pixels) as image:
        try:
            image.load()
            upright = ImageOps.exif_transpose(image)
            return _in_rgb(upright)
        except (*_BROKEN, *_BROKEN_MORE) as error:
            reason = f"`{field}` is a {image.format} image that breaks off or is damaged"
            raise BadMedia(reason=reason) from error


def _in_rgb(image: Image) -> Image:
    """What is transparent becomes white: models are shown no fourth channel, and black would hide dark text."""
    if image.mode == "RGB":
        return image.copy()
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layered = image.convert("RGBA")
        ground: Image = library().new("RGBA", layered.size, "WHITE")
        ground.alpha_composite(layered)
        return ground.convert("RGB")
    return image.convert("RGB")


def _opened(content: bytes, field: str, max_pixels: int) -> Image:
    image_of = library()
    try:
        image: Image = image_of.open(io.BytesIO(content), formats=FORMATS)
    except (*_BROKEN, *_BROKEN_MORE) as error:
        what = "is empty" if not content else "is no image that can be read"
        known = "PNG, JPEG, WebP, GIF, BMP or TIFF"
        reason = f"`{field}` {what} ({len(content):,} bytes), expected {known}"
        raise BadMedia(reason=reason) from error
    width, height = image.size
    if width * height > max_pixels:
        image.close()
        reason = (
            f"`{field}` is an image of {width:,} x {height:,} pixels, allowed are {max_pixels:,} in all;"
            " make it smaller, or raise `media.max_pixels`"
        )
        raise BadMedia(reason=reason)
    return image


def _mime(image: Image) -> str:
    name = image.format or ""
    return _MIMES.get(name) or library().MIME.get(name, f"image/{name.lower()}")
