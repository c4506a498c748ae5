"""Numbers -> words as a person reads them: few digits, thousands parted, a unit.

Knows nothing of: what is counted.
"""

from __future__ import annotations

import math

UNIT = "\N{NO-BREAK SPACE}"
"""Between a number and its unit: they stay on one line."""
KIB = 1024.0
BYTES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def whole(number: float) -> str:
    """`1,234,567`."""
    return f"{round(number):,}"


def amount(number: float) -> str:
    """`950`, `12,345`, `1.23 million`, `4.5 billion`: three digits that say something."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(number) >= size:
            return f"{_digits(number / size)}{UNIT}{word}"
    return _digits(number) if abs(number) < 100 else whole(number)


def short(number: float) -> str:
    """For the ticks of an axis: `0`, `0.5`, `1,500`, `20k`, `1.5M`."""
    for size, word in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            by = size if word != "k" else 1e3
            return f"{number / by:,.6g}{word}"
    return f"{number:,.6g}"


def share(part: float) -> str:
    """`43.6 %`; what is there is never `0 %`, what is missing never `100 %`."""
    if 0 < part < 0.001:
        return f"under 0.1{UNIT}%"
    if 0.999 < part < 1:
        return f"over 99.9{UNIT}%"
    return f"{part * 100:.3g}{UNIT}%"


def size(number: float) -> str:
    """`512 bytes`, `3.4 GiB`."""
    unit = min(int(math.log(number, KIB)), len(BYTES) - 1) if number >= 1 else 0
    return f"{_digits(number / KIB**unit)}{UNIT}{BYTES[unit]}"


def money(price: float) -> str:
    """`0.034`, `12.50`: no currency, for none is known."""
    return f"{price:,.2f}" if price >= 1 or not price else f"{price:.2g}"


def times(ratio: float) -> str:
    """`1.25 x`."""
    return f"{ratio:.2f}{UNIT}x" if ratio < 10 else f"{ratio:,.0f}{UNIT}x"


def _digits(number: float) -> str:
    if not number:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(number))))
    text = f"{number:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
