"""What became of loading -> words for people.

Knows nothing of: how it was done.
"""

from __future__ import annotations

from rowmill.load.loader import Total


def total_line(total: Total, to: str) -> str:
    """How much a store holds of a run."""
    more = "" if total.vectors == total.rows else f" ({total.vectors:,} vectors)"
    refused = f"; {total.refused:,} rows it cannot hold" if total.refused else ""
    return f"{total.rows:,} rows{more} in {to}{refused}"
