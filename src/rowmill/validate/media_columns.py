"""Rows whose images and audio stand in columns of their own -> Requests.

Promises: they stand before the text of the last user message, images first, in the order of the job's columns.
Knows nothing of: what the columns hold (media_parts.py), how the rest of a row is read.
Memory: the bytes that stand in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from rowmill.config import Job
from rowmill.errors import ConfigError, InvalidRow, MissingColumn
from rowmill.media_config import MediaConfig
from rowmill.media_item import Media, MediaKind
from rowmill.rows import AnyRow, Limits, Request, TableRow
from rowmill.validate.lines import names, shown, value_of
from rowmill.validate.media_parts import of_column, wire_part
from rowmill.validate.once import refuse_repeated_inside
from rowmill.validate.rules import Rules


class WayIn(Protocol):
    """How the rest of a row is read."""

    @property
    def needed(self) -> tuple[frozenset[str], ...]: ...

    @property
    def used(self) -> frozenset[str]: ...

    def __call__(self, row: AnyRow) -> Request: ...


class MediaRows:
    """Callable: Row -> Request, or RowError."""

    def __init__(self, rules: Rules, way_in: WayIn, config: MediaConfig) -> None:
        self._rules, self._way_in, self._config = rules, way_in, config
        self._columns: list[tuple[MediaKind, str]] = [
            *(("image", name) for name in config.images),
            *(("audio", name) for name in config.audio),
        ]
        mine = frozenset(name for _, name in self._columns)
        self.needed = (*way_in.needed, *(frozenset((name,)) for name in mine))
        self.used = way_in.used | mine

    def __call__(self, row: AnyRow) -> Request:
        media = list(self._media(row))
        request = self._way_in(row)
        return with_media(request, media, is_wire=self._rules.way.is_wire) if media else request

    def requests(self, rows: Sequence[AnyRow]) -> None:
        """No rows are known to be plain."""
        del rows

    def of_lines(self, rows: Sequence[AnyRow]) -> None:
        """No rows are known to be plain."""
        del rows

    def _media(self, row: AnyRow) -> Iterator[Media]:
        for kind, name in self._columns:
            value, is_binary = self._value(row, name)
            yield from of_column(value, kind, shown(name), self._config, is_binary=is_binary)

    def _value(self, row: AnyRow, name: str) -> tuple[Any, bool]:
        """A column's value, and whether it is base64 of bytes."""
        if type(row) is TableRow:
            if name not in row.columns.names:
                raise _missing(name, dict.fromkeys(row.columns.names, b""))
            return msgspec.to_builtins(row.columns.values(name)[row.at]), row.columns.is_binary(
                name
            )
        columns, _ = self._rules.columns(row)
        if name not in columns:
            raise _missing(name, columns)
        value = value_of(columns[name], name)
        refuse_repeated_inside(columns[name], shown(name), value)
        return value, False


def _missing(name: str, columns: dict[str, bytes]) -> MissingColumn:
    return MissingColumn(reason=f"column `{shown(name)}` is absent; {names(columns)}")


def with_media(request: Request, media: list[Media], *, is_wire: bool) -> Request:
    """A request that is asked with images or audio as well.

    Raises:
        InvalidRow: its conversation does not end with the user's text.
    """
    if request.messages is None:
        return msgspec.structs.replace(request, media=[*media, *request.media])
    *before, last = request.messages
    if last.get("role") != "user" or not isinstance(last.get("content"), str):
        reason = "the conversation does not end with a text of the user's; write images into its messages"
        raise InvalidRow(reason=reason)
    text = {"type": "text", "text": last["content"]}
    seen = {**last, "content": [*({"type": one.kind} for one in media), text]}
    wire = b""
    if is_wire:
        sent = {**last, "content": [*map(wire_part, media), text]}
        wire = msgspec.json.encode([*before, sent])
    parted = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in before]
    return msgspec.structs.replace(request, messages=[*parted, seen], wire=wire, media=media)


def check_media(job: Job, limits: Limits, *, wraps_text: bool) -> None:
    """See that an engine takes what the job's columns hold.

    Raises:
        ConfigError: it does not.
    """
    asked: dict[str, tuple[str, ...]] = {"image": job.media.images, "audio": job.media.audio}
    for kind, columns in asked.items():
        if columns and kind not in limits.media:
            field = "images" if kind == "image" else "audio"
            engine = limits.about or f"engine `{job.engine.name}`"
            taken = ", ".join(limits.media) or "text alone"
            reason = f"`media.{field}` names columns, and {engine} takes no {field}; it takes {taken}"
            raise ConfigError(reason=reason)
    if any(asked.values()) and limits.takes == "wire" and not wraps_text:
        reason = (
            "`media.images` and `media.audio` go with chat, and completions of an endpoint take text alone;"
            ' set `kind = "chat"`'
        )
        raise ConfigError(reason=reason)
