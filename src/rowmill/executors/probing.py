"""`plan/probe.json` -> what `rowmill tune` measured on rows of a run, for its forecast.

Promises: a probe that cannot be read is none: it is only said.
Knows nothing of: how it was measured.
"""

from __future__ import annotations

import msgspec

from rowmill import rundir
from rowmill.forecast.probe import Probe
from rowmill.storage import Storage


def read_probe(storage: Storage) -> Probe | None:
    """The probe of a run, None where there is none."""
    if storage.size(rundir.PROBE) is None:
        return None
    try:
        return msgspec.json.decode(storage.read(rundir.PROBE), type=Probe)
    except msgspec.DecodeError:
        return None
