from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rowmill.errors import BadMedia
from rowmill.media import pictures
from tests.media.pictures_of import bomb, encoded

MOST = 1_000_000


@pytest.mark.parametrize(
    ("kind", "mime"),
    [
        ("PNG", "image/png"),
        ("JPEG", "image/jpeg"),
        ("WEBP", "image/webp"),
        ("GIF", "image/gif"),
        ("BMP", "image/bmp"),
        ("TIFF", "image/tiff"),
    ],
)
def test_image_is_known_by_its_bytes(kind: str, mime: str) -> None:
    content = encoded(Image.new("RGB", (9, 7), (250, 0, 0)), kind)

    facts = pictures.look(content, "f", max_pixels=MOST)
    image = pictures.decode(content, "f", max_pixels=MOST)

    assert (mime, 9, 7) == (facts.mime, facts.width, facts.height)
    assert ("RGB", (9, 7)) == (image.mode, image.size)


def test_program_that_calls_itself_an_image_is_none() -> None:
    """PostScript would be run by Ghostscript."""
    content = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n"

    with pytest.raises(BadMedia, match="no image that can be read"):
        pictures.look(content, "f", max_pixels=MOST)


def test_bomb_is_refused_before_it_is_unpacked() -> None:
    content = bomb()

    with pytest.raises(BadMedia, match="40,000 x 40,000 pixels, allowed are 1,000,000"):
        pictures.look(content, "f", max_pixels=MOST)
    with pytest.raises(BadMedia, match=r"raise `media\.max_pixels`"):
        pictures.decode(content, "f", max_pixels=MOST)
    assert len(content) < 10_000


def test_what_is_transparent_is_white_and_what_is_turned_is_upright() -> None:
    clear = encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG")
    turned = Image.new("RGB", (4, 2))
    exif = turned.getexif()
    exif[0x0112] = 6  # the camera was held upright
    file = io.BytesIO()
    turned.save(file, "JPEG", exif=exif)

    white = pictures.decode(clear, "f", max_pixels=MOST)
    upright = pictures.decode(file.getvalue(), "f", max_pixels=MOST)

    assert (255, 255, 255) == white.getpixel((0, 0))
    assert (2, 4) == upright.size


@given(data=st.data())
def test_damaged_image_is_read_or_is_bad_media(data: st.DataObject) -> None:
    """Whatever a decoder meets, it is the row's failure, never the run's."""
    kind = data.draw(st.sampled_from(["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"]))
    content = bytearray(encoded(Image.new("RGB", (16, 16), (1, 200, 3)), kind))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])

    try:
        mode = pictures.decode(cut, "f", max_pixels=MOST).mode
    except BadMedia as error:
        mode = str(error)

    assert mode == "RGB" or mode.startswith("`f` ")
