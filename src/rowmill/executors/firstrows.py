"""The first rows, checked before an engine that takes minutes to start is started: read and validated, not measured.

Promises: what would refuse the job is found here; nothing is kept, nothing is tokenised, so the engine can start
while the same rows are read again and tokenised.
Knows nothing of: engines, outputs.
Memory: one window.
Source: measured, 300-byte rows: reading and validating 200,000 of them takes 0.6 s, an engine's start a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rowmill.executors.opening import Opened, stations_of
from rowmill.pipeline import TaskRows


def check_first_rows(opened: Opened, tasks: Iterable[int], is_over: Callable[[], bool]) -> int:
    """Read and validate `validate.first_rows` rows of these tasks.

    Args:
        is_over: whether to stop before the end.

    Returns: how many of them can be asked.

    Raises:
        DuplicateIds: ids repeat among them.
        ConfigError: none of them has what the job asks with.
    """
    stations = stations_of(opened)
    wanted = opened.words.job.validate_.first_rows
    num_good = 0
    for valid in stations.validated(_slices(opened, tasks)):
        num_good += len(valid.requests)
        stations.count(valid.rejects, valid.num_rows)
        if stations.num_read >= wanted or is_over():
            break
    if opened.is_new:
        stations.check_duplicates()
        stations.check_any_asked()
    return num_good


def _slices(opened: Opened, tasks: Iterable[int]) -> Iterator[TaskRows]:
    for task in tasks:
        yield TaskRows(task, list(opened.places.task_slices(task)), set())
