"""A model's files -> how many tokens of a prompt an image takes.

Promises: a count is exact for families that are known here, as their own processors make it; else it is an estimate, and
says so.
Knows nothing of: images beyond their size.
Source: transformers 5.19, `image_processing_qwen2_vl.py` (smart_resize), `processing_idefics3.py` and
`image_processing_idefics3.py` (tiles), `processing_llava.py`; compared with vLLM 0.32 in a test.
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
UNKNOWN_IMAGE = 1024
"""Of an image that nobody has looked at yet."""
AUDIO_TOKENS_S = 25
"""Of audio, a second: that of Qwen2-Audio."""
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
