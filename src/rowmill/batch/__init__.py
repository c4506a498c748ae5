"""A run -> the files of a batch: one line an input line, in the dialect of `vllm run-batch` or of OpenAI's Batch API.

Promises: every input line is in the files once, in input order, under its own `custom_id`; a file is there whole, or not
at all; both dialects are read back.
Knows nothing of: how rows are asked.
"""

from __future__ import annotations

from rowmill.batch.again import Again, check_alone, drop, num_failed, put_back, select
from rowmill.batch.reading import (
    BatchStatus,
    batch_status,
    errors_of,
    is_alone,
)
from rowmill.batch.target import Target, folder_of, read_target, write_target
from rowmill.batch.writing import Written, check_target, write_again, write_batch

__all__ = [
    "Again",
    "BatchStatus",
    "Target",
    "Written",
    "batch_status",
    "check_alone",
    "check_target",
    "drop",
    "errors_of",
    "folder_of",
    "is_alone",
    "num_failed",
    "put_back",
    "read_target",
    "select",
    "write_again",
    "write_batch",
    "write_target",
]
