"""Keys of rows -> what people know them by: `FILE:LINE`, and the row's own id as it stands in the input.

Promises: an id is only told where the input is the one that was answered; no other text of a row is.
Knows nothing of: outcomes.
Memory: the ids; one piece of one shard.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rowmill.errors import RowmillError
from rowmill.read import read_spans
from rowmill.report.run import View
from rowmill.rows import pack_key, unpack_key
from rowmill.validate.ids import IdColumns, id_names
from rowmill.validate.salvage import Salvage

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
        salvage = salvage_of(view)
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
                    self._id_by_key[pack_key(number, ordinal)] = id_in(line, salvage)


def salvage_of(view: View) -> Salvage:
    """Finds the ids of a run's rows, good or bad."""
    names = id_names(view.record.identity.get("validate.id_column") or "")
    return Salvage(view.record.prefix, IdColumns(names))


def id_in(line: bytes, salvage: Salvage) -> str:
    """The id in a row; empty where there is none."""
    text = text_of(salvage.id(line))
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."


def text_of(id: bytes) -> str:
    """An id for people: a string as it is, a number by its digits."""
    return msgspec.json.decode(id, type=str) if id.startswith(b'"') else id.decode()
