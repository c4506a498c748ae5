"""Keys and values of rows that are computed side by side, padded on the left: rows enter and leave between steps.

Promises: the last token of every row stands in the same column, so that a step writes one column;
a row that leaves costs the copy of one row; columns that no row needs are not read.
Knows nothing of: tokens, samplings, who the rows are.
Memory: `rows` x `columns` tokens, grown by doubling, no more than twice what is in use.
Shapes: B rows, H key-value heads, C columns, D head size; `keys_BHCD`.
Source: `DynamicLayer` of transformers 5.19, which copies all keys and values at each step.
"""

from __future__ import annotations

from functools import cache
from typing import Any

_SPARE_COLUMNS = 64


class PaddedLayer:
    """One layer's part of the cache: what `CacheLayerMixin` asks for, see `_layer_class`."""

    is_sliding = False
    is_compileable = False
    is_initialized = True

    def __init__(self, place: Place) -> None:
        self._place = place
        self.keys: Any = None
        self.values: Any = None

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """Nothing: `PaddedCache.join` makes the buffers."""

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> Any:
        """Write the column of this step; all columns in use, this one last."""
        place = self._place
        self.keys[: place.rows, :, place.stop] = key_states[:, :, 0]
        self.values[: place.rows, :, place.stop] = value_states[:, :, 0]
        used = slice(place.start, place.stop + 1)
        return self.keys[: place.rows, :, used], self.values[: place.rows, :, used]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self._place.stop - self._place.start

    def get_max_length(self) -> int:
        return -1


@cache
def _layer_class() -> Any:
    """`PaddedLayer` as one of the library's own kind, which cannot be named before torch is there."""
    from transformers.cache_utils import CacheLayerMixin

    return type("Layer", (PaddedLayer, CacheLayerMixin), {})


class Place:
    """Which rows and columns are in use."""

    rows = 0
    start = 0
    stop = 0


class PaddedCache:
    """The cache of all layers."""

    def __init__(self) -> None:
        self._place = Place()
        self.layers: list[PaddedLayer] = []
        """None until the first rows `join`."""

    @property
    def width(self) -> int:
        """Columns in use."""
        return self._place.stop - self._place.start

    def for_model(self) -> Any:
        """What the model is given: the library's own kind, with our layers in it."""
        from transformers.cache_utils import Cache

        return Cache(layers=self.layers)

    def stepped(self) -> None:
        """Count the column that a step wrote."""
        self._place.stop += 1

    def join(self, computed: Any, rows: list[int]) -> None:
        """Add rows that were computed by themselves, padded on the left.

        Args:
            computed: Their own cache, of the library.
            rows: Which of its rows, in order; one may be taken several times.
        """
        import torch

        place = self._place
        width = computed.get_seq_length()
        if not place.rows:
            place.start = place.stop = 0
        self._make_room(computed, place.rows + len(rows), max(self.width, width))
        at = torch.tensor(rows, device=computed.layers[0].keys.device)
        into = slice(place.rows, place.rows + len(rows))
        columns = slice(place.stop - width, place.stop)
        for ours, theirs in zip(self.layers, computed.layers, strict=True):
            ours.keys[into, :, columns] = theirs.keys.index_select(0, at)
            ours.values[into, :, columns] = theirs.values.index_select(0, at)
        place.start = min(place.start, place.stop - width)
        place.rows += len(rows)

    def leave(self, row: int) -> None:
        """Take a row out; the last row takes its place."""
        place = self._place
        place.rows -= 1
        if row == place.rows:
            return
        used = slice(place.start, place.stop)
        for layer in self.layers:
            layer.keys[row, :, used] = layer.keys[place.rows, :, used]
            layer.values[row, :, used] = layer.values[place.rows, :, used]

    def trim(self, width: int) -> None:
        """Forget columns before the last `width`."""
        self._place.start = max(self._place.start, self._place.stop - width)

    def reserve(self) -> None:
        """See that the next step has a column to write."""
        if self._place.stop >= self.layers[0].keys.shape[2]:
            self._rebuild(self.layers, self._place.rows, self.width)

    def _make_room(self, computed: Any, rows: int, width: int) -> None:
        """Buffers with so many rows, and so many columns up to where the next one is written."""
        if not self.layers:
            self.layers = [_layer_class()(self._place) for _ in computed.layers]
        keys = self.layers[0].keys
        is_short = keys is None or keys.shape[0] < rows or keys.shape[2] <= self._place.stop
        if is_short or self._place.stop < width:
            self._rebuild(computed.layers, rows, width)

    def _rebuild(self, like: Any, rows: int, width: int) -> None:
        """New buffers, with what is in use moved to the right end of the first `width` columns."""
        import torch

        place = self._place
        old = slice(place.start, place.stop)
        columns = width + max(_SPARE_COLUMNS, width // 2)
        new = slice(width - self.width, width)
        for ours, theirs in zip(self.layers, like, strict=True):
            for name in ("keys", "values"):
                model, was = getattr(theirs, name), getattr(ours, name)
                had = 0 if was is None else was.shape[0]
                made = max(rows, min(2 * had, rows + 8)) if rows > had else had
                size = (made, model.shape[1], columns, model.shape[3])
                # Zeros: what stands where a row has no token yet is multiplied by nought, and must be finite.
                fresh = torch.zeros(size, dtype=model.dtype, device=model.device)
                if place.rows:
                    fresh[: place.rows, :, new] = was[: place.rows, :, old]
                setattr(ours, name, fresh)
        place.start, place.stop = new.start, new.stop
