"""What engines ask of a text that gets numbers for an answer, before they compute it.

Knows nothing of: engines.
"""

from __future__ import annotations

from rowmill import errors
from rowmill.rows import Ids, Outcome


def check_text(ids: Ids, *, limit: int, vocabulary: int) -> None:
    """See that a text is one that a model can compute.

    Raises:
        RowError: It is not.
    """
    if len(ids) > limit:
        raise errors.TooLong(prompt_tokens=len(ids), asked_tokens=0, limit_tokens=limit)
    if not len(ids):
        reason = "the prompt has no tokens, expected at least one"
        raise errors.InvalidRow(reason=reason)
    if ids.max() >= vocabulary:
        reason = (
            f"token id {ids.max()}, expected ids below {vocabulary}, the model's vocabulary"
        )
        raise errors.InvalidRow(reason=reason)


def failed_text(key: int, tokens: int, error: errors.RowError) -> Outcome:
    """The outcome of a row that no model has seen."""
    return Outcome(
        key=key,
        status="error",
        prompt_tokens=tokens,
        attempts=1,
        seconds=0.0,
        error_kind=error.kind,
        error=str(error),
    )
