"""A model's files -> how many tokens of a prompt an image or a piece of audio takes.

Promises: a count is exact for families that are known here, as their own processors make it; else it is an estimate, and
says so.
Knows nothing of: images beyond their size, audio beyond its length.
Source: transformers 5.19, `image_processing_qwen2_vl.py` (smart_resize), `processing_idefics3.py` and
`image_processing_idefics3.py` (tiles), `processing_llava.py`, `processing_qwen2_audio.py` and
`feature_extraction_whisper.py` (frames); Idefics3 and Qwen2-Audio compared with vLLM 0.32 in tests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

ESTIMATED_PIXELS = 28 * 28
"""A token for so many, where a model's family is not known: that of Qwen's, about."""
ESTIMATED_MOST = 4096
AUDIO_TOKENS_S = 25
"""Of audio, a second, where a model's family is not known: that of Qwen2-Audio."""
UNKNOWN = {"image": 1024, "audio": 30 * AUDIO_TOKENS_S}
"""Of what nobody has looked at yet."""
_QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
_Count = Callable[[int, int], int]


class ImageTokens(msgspec.Struct, frozen=True):
    """How an image is counted."""

    count: _Count
    """Width and height -> tokens."""
    is_exact: bool
    about: str
    """In words, for people."""


def image_tokens(model: str) -> ImageTokens:
    """How images of a model are counted; `model` is its folder, or a name that tells nothing."""
    folder = Path(model).expanduser()
    config = _object(folder / "config.json")
    told = {**_object(folder / "processor_config.json")}
    told |= {"image_processor": _object(folder / "preprocessor_config.json")} | told
    try:
        count = _count_of(config, told)
    except (ArithmeticError, KeyError, TypeError, ValueError):
        count = None  # a setting that this version does not know
    if count is None:
        about = f"a token for {ESTIMATED_PIXELS:,} pixels, an estimate: this model's own rule is not known here"
        return ImageTokens(_estimate, is_exact=False, about=about)
    return ImageTokens(
        count, is_exact=True, about=f"as {config['model_type']} counts by its own files"
    )


class AudioTokens(msgspec.Struct, frozen=True):
    """How a piece of audio is counted, and how it is heard."""

    count: _Count
    """Samples and their rate -> tokens; of a known family 0 where it is too short to be heard at all."""
    is_exact: bool
    about: str
    """In words, for people."""
    rate: int = 0
    """Samples a second that the model hears; 0: not known."""
    most_s: float = 0.0
    """Seconds of a piece that it hears, from its beginning; 0: all of them, or not known."""


def audio_tokens(model: str) -> AudioTokens:
    """How audio of a model is counted; `model` is its folder, or a name that tells nothing."""
    folder = Path(model).expanduser()
    config = _object(folder / "config.json")
    told = _object(folder / "preprocessor_config.json")
    told |= _object(folder / "processor_config.json").get("feature_extractor") or {}
    about = f"{AUDIO_TOKENS_S} a second, an estimate: this model's own rule is not known here"
    try:
        rate = int(told.get("sampling_rate") or 0)
        if config.get("model_type") == "qwen2_audio":
            most = int(told["chunk_length"]) * rate
            return AudioTokens(
                _heard(rate, most, int(told["hop_length"])),
                is_exact=True,
                about="as qwen2_audio counts by its own files",
                rate=rate,
                most_s=most / rate,
            )
    except (ArithmeticError, KeyError, TypeError, ValueError):
        rate = 0  # a setting that this version does not know
    return AudioTokens(_estimated_audio, is_exact=False, about=about, rate=rate)


def _heard(rate: int, most: int, hop: int) -> _Count:
    """A frame for each hop that begins in the samples; of frames two layers in turn leave every second."""

    def count(samples: int, own_rate: int) -> int:
        own = -(-samples * rate // own_rate)
        frames = min(most // hop, -(-own // hop))
        return ((frames - 1) // 2 - 1) // 2 + 1

    return count


def _estimated_audio(samples: int, rate: int) -> int:
    return round(samples / rate * AUDIO_TOKENS_S)


def _count_of(config: Mapping[str, Any], told: Mapping[str, Any]) -> _Count | None:
    kind = config.get("model_type")
    images = told["image_processor"]
    if kind in _QWEN and images:
        return _qwen(images)
    if kind in ("idefics3", "smolvlm") and images:
        return _idefics(config, told)
    if kind == "llava":
        vision = config["vision_config"]
        side = int(vision["image_size"]) // int(vision["patch_size"])
        whole = config.get("vision_feature_select_strategy") == "full"
        return lambda width, height: side * side + whole
    return None


def _qwen(images: Mapping[str, Any]) -> _Count:
    """Sides are multiples of a patch; small images grow, large ones shrink, into a range of pixels."""
    patch, merge = int(images.get("patch_size", 14)), int(images.get("merge_size", 2))
    size = images.get("size") or {}
    least = images.get("min_pixels") or size.get("shortest_edge") or 56 * 56
    most = images.get("max_pixels") or size.get("longest_edge") or 28 * 28 * 1280
    side = patch * merge

    def count(width: int, height: int) -> int:
        tall, wide = (max(side, round(n / side) * side) for n in (height, width))
        if tall * wide > most:
            scale = math.sqrt(height * width / most)
            tall, wide = (
                max(side, math.floor(n / scale / side) * side) for n in (height, width)
            )
        elif tall * wide < least:
            scale = math.sqrt(least / (height * width))
            tall, wide = (math.ceil(n * scale / side) * side for n in (height, width))
        return (tall // side) * (wide // side)

    return count


def _idefics(config: Mapping[str, Any], told: Mapping[str, Any]) -> _Count:
    """Tiles, a row and column told before each, and the whole image small behind them."""
    images = told["image_processor"]
    tile, longest = images["max_image_size"]["longest_edge"], images["size"]["longest_edge"]
    vision = config["vision_config"]
    own = (vision["image_size"] // vision["patch_size"]) ** 2 // config["scale_factor"] ** 2
    each = int(told.get("image_seq_len") or own)
    splits = images.get("do_image_splitting", True)

    def count(width: int, height: int) -> int:
        columns, rows = _tiles(width, height, longest, tile) if splits else (0, 0)
        if not rows:
            return each + 3
        # A tile is told by two tokens, a row of them ends with a line feed; then the whole, and what is around it.
        return rows * columns * (each + 2) + rows + each + 4

    return count


def _tiles(width: int, height: int, longest: int, tile: int) -> tuple[int, int]:
    """Columns and rows; zeros where the image is one tile."""
    ratio = width / height
    if width >= height:
        wide, tall = longest, int(longest / ratio)
        tall += tall % 2
    else:
        wide, tall = int(longest * ratio), longest
        wide += wide % 2
    wide, tall = max(wide, 1), max(tall, 1)
    # Both sides become multiples of a tile: the longer one first, the other by the sides' ratio.
    ratio = wide / tall
    if wide >= tall:
        wide = math.ceil(wide / tile) * tile
        tall = math.ceil(int(wide / ratio) / tile) * tile
    else:
        tall = math.ceil(tall / tile) * tile
        wide = math.ceil(int(tall * ratio) / tile) * tile
    if wide <= tile and tall <= tile:
        return 0, 0
    return wide // tile, tall // tile


def _estimate(width: int, height: int) -> int:
    return min(ESTIMATED_MOST, max(16, math.ceil(width * height / ESTIMATED_PIXELS)))


def _object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
