"""What a start finds at an output, and what it leaves there.

Promises: a start that is refused, or is stopped before its run is written down, leaves what it found;
files of the user's are not touched.
Knows nothing of: tasks, rows.
"""

from __future__ import annotations

import contextlib

from rowmill import rundir
from rowmill.engines import orphans
from rowmill.errors import BadOutput, ConfigError, StorageError
from rowmill.executors.stopping import StoppedNow
from rowmill.prepared import remove_all
from rowmill.record import read_run
from rowmill.storage import LocalStorage, Storage, probe

OWN_HIDDEN = (".lock", ".tmp-", ".probe-")
"""How hidden files that are ours begin; others in the folder are the user's."""


class Traces:
    """An output as a start finds it."""

    def __init__(self, storage: Storage) -> None:
        """Look at it, and where there is no run, see whether one can be written.

        Raises:
            BadOutput: it cannot be looked at, or not be written.
        """
        self._storage, self._had_run = storage, _has_run(storage)
        if not self._had_run:
            probe(storage)
        self._had_root = isinstance(storage, LocalStorage) and storage.root.exists()

    def remove(self, error: ConfigError | StoppedNow) -> None:
        """Leave nothing of a run that was refused, or stopped while nothing was written down."""
        if self._had_run or not isinstance(self._storage, LocalStorage):
            return
        if isinstance(error, ConfigError) or not _has_run(self._storage):
            _remove(self._storage, self._had_root)


def _has_run(storage: Storage) -> bool:
    """Whether a run lies at the output.

    Raises:
        BadOutput: it cannot be looked at.
    """
    try:
        return read_run(storage) is not None
    except StorageError as error:
        reason = f"output `{storage.url}` cannot be used: {error.fields['reason']}; name another folder"
        raise BadOutput(reason=reason) from error


def tidy(storage: Storage) -> None:
    """Clear away what a killed owner left: engines without a parent, half-written files, ids made ahead, text of
    files that did not come to join."""
    for name in storage.list(rundir.ENGINES):
        path = storage.path(name)
        if path is not None and rundir.pid_of_engine(name) is not None:
            orphans.end_orphan(path)
    remove_all(storage)
    _remove_strange_spools(storage)
    storage.sweep()


def remove_strange(storage: Storage) -> None:
    """Files that were refused, or whose reading was stopped, do not join: nor do their text and leases of their tasks."""
    found = read_run(storage)
    num_tasks = found[1].num_tasks if found else 0
    for name in storage.list(rundir.LEASES):
        task = rundir.task_of_lease(name)
        if task is not None and task >= num_tasks:
            storage.remove(name)
    _remove_strange_spools(storage)


def _remove_strange_spools(storage: Storage) -> None:
    """Of a run that is there, text of files that never joined it."""
    spools = storage.list(rundir.SPOOL)
    found = read_run(storage) if spools else None
    if found is None:
        return
    known = {rundir.SPOOL + file.spool for file in found[0].files}
    for name in spools:
        if name not in known:
            storage.remove(name)


def _remove(storage: LocalStorage, root_was_there: bool) -> None:
    """Remove what a start that is refused wrote, and no file of the user's."""
    root = storage.root
    for path in sorted(root.rglob("*"), reverse=True):
        name = path.relative_to(root).as_posix()
        if path.is_file() and (rundir.is_ours(name) or path.name.startswith(OWN_HIDDEN)):
            path.unlink()
        elif path.is_dir() and rundir.is_ours(f"{name}/"):
            with contextlib.suppress(OSError):
                path.rmdir()
    if not root_was_there:
        with contextlib.suppress(OSError):
            root.rmdir()
