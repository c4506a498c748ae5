"""Parts of a conversation that are images or audio, and columns that hold some -> Media, and what an endpoint is sent.

Promises: where something may come from is decided here, before anything is read; base64 is strict, but for white space.
Knows nothing of: disks, networks, what a file holds.
Memory: the bytes that stand in a row.
"""

from __future__ import annotations

from binascii import Error as BinasciiError
from binascii import a2b_base64
from typing import Any, NoReturn

import msgspec

from rowmill.errors import BadMedia, InvalidRow
from rowmill.media.origins import path_mistake, scheme_of, url_mistake
from rowmill.media_config import MediaConfig
from rowmill.media_item import MARK, Form, Media, MediaKind
from rowmill.validate.lines import what_is, word

KIND_OF: dict[Any, MediaKind] = {
    "image_url": "image",
    "image": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio": "audio",
}
"""Types of content parts, as OpenAI, vLLM and transformers' templates have them."""
_PLURAL = {"image": "images", "audio": "audio"}
_SPACE = {ord(c): None for c in " \t\r\n"}
_HERE = msgspec.Raw(MARK)


class Sees(msgspec.Struct, frozen=True):
    """What of images and audio a job may ask with."""

    kinds: frozenset[str]
    """What the engine takes."""
    config: MediaConfig
    passes_urls: bool
    """An endpoint reads URLs by itself."""


NO_MEDIA = Sees(frozenset(), MediaConfig(), passes_urls=False)


class Shown(msgspec.Struct, frozen=True):
    """A part of a conversation that is an image or audio."""

    part: dict[str, Any]
    """As templates have it."""
    wire: Any
    """As an endpoint is sent it, a NUL byte in the place of what is read later."""
    media: Media | None
    """None where the endpoint reads it by itself."""


def shown_part(part: dict[str, Any], where: str, sees: Sees) -> Shown:
    """A part of another type than text.

    Raises:
        InvalidRow: it is of no type that is known, or the engine does not take it.
        BadMedia: it comes from where nothing may be read.
    """
    type_ = part.get("type")
    kind = KIND_OF.get(type_) if isinstance(type_, str) else None
    found = f"a part of type {word(type_)}"
    if kind is None:
        known = ", ".join(f"`{name}`" for name in ("text", *KIND_OF))
        _refuse(where, found, f"one of {known}")
    if kind not in sees.kinds:
        _refuse(where, found, f"a `text` part: this engine takes no {_PLURAL[kind]}")
    value = part.get(str(type_))
    if type_ == "input_audio":
        value = _inner(value, f"{where}.input_audio", ("data", "path"))
        if isinstance(value, str) and "data" in part["input_audio"]:
            media: Media = _inline(value, kind, where)
            return _shown(msgspec.structs.replace(media, form="audio"), part, sees)
    elif isinstance(value, dict):
        value = _inner(value, f"{where}.{type_}", ("url", "path", "bytes"))
    form: Form = "url" if kind == "image" or type_ == "audio_url" else "audio"
    media = located(value, kind, where, sees.config)
    return _shown(msgspec.structs.replace(media, form=form), part, sees)


def _shown(media: Media, part: dict[str, Any], sees: Sees) -> Shown:
    seen = {"type": media.kind}
    if (
        media.origin == "url"
        and sees.passes_urls
        and part["type"] in ("image_url", "audio_url")
    ):
        return Shown(seen, part, None)
    return Shown(seen, wire_part(media, part), media)


def wire_part(media: Media, part: dict[str, Any] | None = None) -> dict[str, Any]:
    """What an endpoint is sent, its content left open; `part` is what stood in the row."""
    if media.form == "audio":
        return {"type": "input_audio", "input_audio": _HERE}
    name = f"{media.kind}_url"
    given = (part or {}).get(name)
    kept = given if isinstance(given, dict) else {}
    return {"type": name, name: {**kept, "url": _HERE}}


def _inner(value: Any, where: str, names: tuple[str, ...]) -> Any:
    """What is inside of a part's object: the first of the fields that is there."""
    if not isinstance(value, dict):
        _refuse(where, what_is(value), f"an object with `{names[0]}`")
    name = next((name for name in names if name in value), None)
    if name is None:
        missing = "` and `".join(names)
        _refuse(where, f"an object without `{missing}`", f"`{names[0]}` in it")
    return {name: value[name]} if name == "bytes" else value[name]


def located(
    value: Any, kind: MediaKind, where: str, config: MediaConfig, *, is_binary: bool = False
) -> Media:
    """Where an image or audio is.

    Args:
        is_binary: the text is base64 of a table's bytes.

    Raises:
        InvalidRow: the value is none.
        BadMedia: it comes from where nothing may be read, or is no base64.
    """
    if isinstance(value, dict):
        return _of_table(value, kind, where, config)
    if not isinstance(value, str) or not value:
        _refuse(where, what_is(value), "a URL, a `data:` URL or a path")
    if is_binary:
        return _inline(value, kind, where)
    scheme = scheme_of(value)
    if scheme == "data":
        head, comma, body = value.partition(",")
        if not comma or not head.endswith(";base64"):
            _deny(where, "a `data:` URL without `;base64,` in it")
        return _inline(body, kind, where)
    mistake = url_mistake(value, config.hosts) if scheme else path_mistake(value, config.folder)
    if mistake:
        _deny(where, mistake)
    return Media(kind, "url" if scheme else "path", where, where=value)


def _of_table(value: dict[str, Any], kind: MediaKind, where: str, config: MediaConfig) -> Media:
    """An object with `bytes`, or else `path`: how data sets in Parquet hold files."""
    if isinstance(value.get("bytes"), str) and value["bytes"]:
        return _inline(value["bytes"], kind, where)
    if "path" not in value and "bytes" not in value:
        _refuse(where, "an object without `bytes` and `path`", "one of them in it")
    return located(value.get("path"), kind, f"{where}.path", config)


def _inline(text: str, kind: MediaKind, where: str) -> Media:
    try:
        content = a2b_base64(text.translate(_SPACE).encode(), strict_mode=True)
    except (BinasciiError, UnicodeEncodeError) as error:
        reason = f"`{where}` is no base64 (letters missing at its end, or others in it)"
        raise BadMedia(reason=reason) from error
    return Media(kind, "inline", where, content=content)


def _refuse(where: str, found: str, expected: str) -> NoReturn:
    raise InvalidRow(reason=f"`{where}` is {found}, expected {expected}")


def _deny(where: str, what: str) -> NoReturn:
    raise BadMedia(reason=f"`{where}` is {what}")


def of_column(
    value: Any, kind: MediaKind, name: str, config: MediaConfig, *, is_binary: bool
) -> list[Media]:
    """What a column holds: one, or a list of them.

    Raises:
        InvalidRow: it holds something else.
        BadMedia: it comes from where nothing may be read.
    """
    form: Form = "url" if kind == "image" else "audio"
    many = value if isinstance(value, list) else [value]
    wheres = [f"{name}[{i}]" for i in range(len(many))] if isinstance(value, list) else [name]
    found = [
        located(one, kind, where, config, is_binary=is_binary)
        for one, where in zip(many, wheres, strict=True)
    ]
    return [msgspec.structs.replace(one, form=form) for one in found]
