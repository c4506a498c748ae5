"""Seconds -> words.

Promises: short enough for a line; two digits that say something.
Knows nothing of: clocks.
"""


def duration(seconds: float) -> str:
    """Seconds in words: `0.026 s`, `8.2 s`, `3m 05s`, `2h 07m`, `3d 04h`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds >= 0.95 or not seconds else f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes:02d}m"
    return f"{hours // 24}d {hours % 24:02d}h"


def amount(value: float) -> str:
    """Money in words: `12.30`, `0.0123`."""
    return f"{value:,.2f}" if value >= 0.995 or not value else f"{value:.2g}"
