"""`-o FILE` of a batch -> the folder in which its run lies, and back.

Promises: a run knows which files it is to become, so that a retry writes them again.
Knows nothing of: rows.
"""

from __future__ import annotations

import msgspec

from rowmill import rundir
from rowmill.batch.bodies import Dialect
from rowmill.storage import Storage


class Target(msgspec.Struct, frozen=True):
    """`batch.json`: what is written when the run is whole."""

    file: str
    errors: str
    """File of the lines that failed; empty where they stand among the others."""
    dialect: Dialect
    model: str
    """Name of the model in bodies."""


def folder_of(file: str) -> str:
    """Where the run of a batch lies: beside its file."""
    return f"{file}{rundir.BESIDE}"


def write_target(storage: Storage, target: Target) -> None:
    """Note what the run is to become."""
    storage.replace(rundir.BATCH, msgspec.json.encode(target))


def read_target(storage: Storage) -> Target | None:
    """What the run is to become; None where it is no batch."""
    if storage.size(rundir.BATCH) is None:
        return None
    return msgspec.json.decode(storage.read(rundir.BATCH), type=Target)
