"""Requests -> Prompts: what each row costs in tokens, and whether it fits.

`measurer.py` is the way in, pairs.py that of pairs; opening.py decides once a job; chat.py renders,
control_tokens.py keeps data from posing as control tokens, encode.py makes ids, lengths.py is the one rule about the
context.
"""

from rowmill.measure.measurer import DAY, Measure
from rowmill.measure.opening import has_template, open_measure

__all__ = ["DAY", "Measure", "has_template", "open_measure"]
