"""How much a packed file becomes -> refused where that is out of all proportion.

Promises: rows as people have them are never refused: JSON Lines pack to a tenth, seldom to a hundredth.
Knows nothing of: formats.
Source: gzip packs to a 1,032nd at best, bzip2, xz and Zstandard to less than a millionth.
"""

from __future__ import annotations

from rowmill.errors import BadSource

MAX_RATIO = 250
HARMLESS_BYTES = 2**30
"""So much may come out of anything: it does no harm."""


def refuse_bomb(path: str, *, packed: int, unpacked: int) -> None:
    """See that a file becomes no more than is likely.

    Raises: BadSource where it does.
    """
    if unpacked <= HARMLESS_BYTES or unpacked <= MAX_RATIO * max(packed, 1):
        return
    reason = (
        f"`{path}`: {packed:,} packed bytes become {unpacked:,} and more, over {MAX_RATIO} times as much,"
        " as a file does that is made to fill disks; if it is meant to, unpack it and name what comes out"
    )
    raise BadSource(reason=reason)
