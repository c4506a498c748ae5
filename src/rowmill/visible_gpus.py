"""`CUDA_VISIBLE_DEVICES` -> which GPUs of a machine a process may use.

Knows nothing of: drivers, what a GPU is like.
"""

from __future__ import annotations

from collections.abc import Mapping


def visible(uuids: Mapping[int, str], said: str | None) -> list[int]:
    """Indices that `CUDA_VISIBLE_DEVICES` leaves of those with these UUIDs, in its order; None: all.

    It names them by index or by the beginning of their UUID, and ends at the first word that names none, as CUDA reads it
    (programming guide, "CUDA Environment Variables"). Parts of a GPU (`MIG-...`) are none of these: what they hold is
    not known here.
    """
    if said is None:
        return list(uuids)
    found: list[int] = []
    for word in map(str.strip, said.split(",")):
        is_uuid = word.startswith("GPU-")
        named = [
            index
            for index, uuid in uuids.items()
            if word == str(index) or (is_uuid and uuid.startswith(word))
        ]
        if len(named) != 1:
            break
        found += named
    return found
