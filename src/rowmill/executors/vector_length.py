"""Numbers in each vector of a run <-> `plan/vectors.json`: the first start that knows them writes them.

Promises: an engine whose vectors are of another length is refused before it is asked a row, by whichever worker opened it;
else results would be of two lengths, which no table takes.
Knows nothing of: vectors, stores.
"""

from __future__ import annotations

import msgspec

from rowmill import rundir
from rowmill.errors import RunMismatch
from rowmill.journal import read_commits
from rowmill.publish import vector_length
from rowmill.record import Vectors, known_length
from rowmill.storage import Storage


def keep_length(storage: Storage, dimensions: int) -> None:
    """Write down how long vectors are, or see that they are as long as before.

    Raises:
        RunMismatch: they are not.
    """
    begun = known_length(storage)
    if not begun:
        # An endpoint that did not tell at first may have answered rows all the same.
        answered = vector_length(storage, read_commits(storage).values())
        storage.create(rundir.VECTORS, msgspec.json.encode(Vectors(answered or dimensions)))
        begun = known_length(storage)
    if begun != dimensions:
        reason = (
            f"vectors of this run have {begun:,} numbers each, those of the engine have {dimensions:,} now;"
            " let the model answer that it began with, or give another output"
        )
        raise RunMismatch(reason=reason, keys=["engine.model"])
