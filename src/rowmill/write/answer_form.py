"""How answers that are no text are written: which fields such a job has, and as what.

Promises: the fields of a kind, in the order of `Outcome`, in lines and in tables alike.
Knows nothing of: files, values.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Bits = Literal[16, 32]

_FIELDS = {
    "embed": ("embedding",),
    "classify": ("label", "probability", "probabilities"),
    "score": ("score",),
    "rerank": ("scores", "ranking"),
}
OWN_FIELDS = ("embedding", "chunks", "cut_from", *sum(list(_FIELDS.values())[1:], ()))
"""Fields of an outcome that only jobs of some kinds have."""


class AnswerForm(msgspec.Struct, frozen=True):
    """The form of one job's answers."""

    kind: Literal["embed", "classify", "score", "rerank"] = "embed"
    bits: Bits = 32
    """Of each number of a vector."""
    has_chunks: bool = False
    """A text may have several vectors."""
    has_cuts: bool = False
    """A part of a text may be left out."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of what such a job has beside the fields of all jobs."""
        chunks = ("chunks",) if self.has_chunks else ()
        cuts = ("cut_from",) if self.has_cuts else ()
        if self.kind == "embed":
            return ("embedding", *chunks, *cuts)
        return (*cuts, *_FIELDS[self.kind])
