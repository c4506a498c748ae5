"""Rows of a table as columns: what readers of CSV, Parquet and Arrow give, and how it becomes rows.

Promises: a row's JSON view is made by the rules of view.py alone, whoever asks for it.
Knows nothing of: files.
Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Wants = Callable[[str], bool]
"""Whether a column of this name is of use; readers leave others unread where they can."""


class Table(msgspec.Struct):
    """Neighbouring rows of a shard, types as in the file.

    Shapes: `ordinals` R int64, ascending, blank records left out; `batch` R rows.
    """

    ordinals: npt.NDArray[np.int64]
    batch: pa.RecordBatch
    bad: dict[int, str] = {}
    """Index in the batch of a record that is no row whatever it says -> the end of a sentence about it.
    Its fields, as far as they are there, stand in the batch; others are null."""
