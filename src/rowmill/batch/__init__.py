"""A run -> the files of a batch: one line an input line, in the dialect of `vllm run-batch` or of OpenAI's Batch API.

Promises: every input line is in the files once, in input order, under its own `custom_id`; a file is there whole, or not
at all; both dialects are read back.
Knows nothing of: how rows are asked.
"""

from __future__ import annotations

from rowmill.batch.again import Again, check_alone, drop, num_failed, put_back, select
from rowmill.batch.by_url import (
    Place,
    check_urls,
    download,
    input_place,
    is_url,
    output_place,
    upload,
)
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
    "Place",
    "Target",
    "Written",
    "batch_status",
    "check_alone",
    "check_target",
    "check_urls",
    "download",
    "drop",
    "errors_of",
    "folder_of",
    "input_place",
    "is_alone",
    "is_url",
    "num_failed",
    "output_place",
    "put_back",
    "read_target",
    "select",
    "upload",
    "write_again",
    "write_batch",
    "write_target",
]
