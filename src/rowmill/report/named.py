"""Keys of rows -> what people know them by: `FILE:LINE`, and the row's own id as it stands in the input.

Promises: an id is only told where the input is the one that was answered; no other text of a row is.
Knows nothing of: outcomes.
Memory: the ids; one piece of one shard.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from rowmill.errors import RowmillError
from rowmill.read import read_spans
from rowmill.report.run import View
from rowmill.rows import pack_key, unpack_key

ID_COLUMNS = ("custom_id", "id")
MAX_CHARS = 80


class Names:
    """Rows by name; each is looked up once."""

    def __init__(self) -> None:
        self._id_by_key: dict[int, str] = {}
        self.note = ""
        """Why ids are not told; empty where they are."""

    def look(self, view: View, keys: Iterable[int]) -> None:
        """Find the ids of rows, as far as they have any."""
        wanted = sorted(set(keys) - self._id_by_key.keys())
        if not wanted:
            return
        self.note = ""
        try:
            view.check_input()
            self._read(view, wanted)
        except (RowmillError, OSError) as error:
            self.note = f"Rows are named by their places alone: {error}"

    def id_of(self, key: int) -> str:
        """The id of a row; empty where it has none, or none is known."""
        return self._id_by_key.get(key, "")

    def _read(self, view: View, keys: list[int]) -> None:
        columns = (view.record.identity.get("validate.id_column") or "", *ID_COLUMNS)
        by_shard: dict[int, list[int]] = {}
        for number, ordinal in map(unpack_key, keys):
            by_shard.setdefault(number, []).append(ordinal)
        for number, ordinals in by_shard.items():
            spans = read_spans(
                view.cut.shards[number], first=ordinals[0], stop=ordinals[-1] + 1
            )
            wanted = set(ordinals)
            for ordinal, line in (span for part in spans for span in part):
                if ordinal in wanted:
                    self._id_by_key[pack_key(number, ordinal)] = id_in(line, columns)


def id_in(line: bytes, columns: tuple[str, ...]) -> str:
    """The id in a row; empty where there is none, or it is no text or number."""
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        found = msgspec.json.decode(line)
        if isinstance(found, dict):
            ids = [found[name] for name in columns if name in found]
            if ids and isinstance(ids[0], str | int):
                text = str(ids[0])
                return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."
    return ""
