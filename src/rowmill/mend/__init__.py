"""Job -> a mended copy of its input: faults whose cure is not open to doubt, counted file by file.

A file meets text.py (encoding, whole lines), lines.py (one line), copying.py (the copy), and all copies together
repeats.py (ids that repeat); fixing.py strings them together.

Promises: the input is only read; the copy is there as a whole, or after an error not at all; what is cut off is kept;
a line that cannot be mended is carried as it is; mending a mended copy changes no byte.
Knows nothing of: engines, what a row asks.
"""

from rowmill.mend.fixing import Fixed, fix

__all__ = ["Fixed", "fix"]
