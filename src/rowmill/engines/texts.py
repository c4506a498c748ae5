"""What becomes of a text that was to get numbers and was never computed.

Knows nothing of: engines.
"""

from __future__ import annotations

from rowmill import errors
from rowmill.rows import Outcome


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
