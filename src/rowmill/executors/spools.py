"""Text that was unpacked -> where the run keeps it: in the output's folder, or as objects beside the outcomes.

Promises: a run that is written down has its spools; whoever looks at it later, on whichever machine, finds them.
Knows nothing of: what is in them.
Memory: pages of one file.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Sequence
from pathlib import Path

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.rows import Shard
from rowmill.storage import LocalStorage, ObjectStorage, Storage
from rowmill.storage.addresses import is_remote
from rowmill.storage.temporary import temporary_folder


def spool_folder(storage: Storage) -> Path:
    """Where text goes that cannot be read in place: to the output, or, where that is no folder,
    to a temporary one first."""
    if isinstance(storage, LocalStorage):
        return storage.root / rundir.SPOOL.rstrip("/")
    folder = temporary_folder("spool")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def keep_spools(storage: Storage, shards: Sequence[Shard]) -> None:
    """Put the spools of new shards beside the outcomes, where they do not lie there already.

    Raises: StorageError.
    """
    if not isinstance(storage, ObjectStorage):
        return
    paths = {shard.path for shard in shards if shard.frame is not None}
    for path in sorted(path for path in paths if not is_remote(path)):
        spool = Path(path)
        try:
            with spool.open("rb") as file:
                storage.upload(rundir.SPOOL + spool.name, file, spool.stat().st_size)
        except OSError as error:
            reason = f"cannot be read ({error.strerror})"
            raise StorageError(path=path, reason=reason) from error
