"""What Qdrant calls things, and what is said of a collection of another shape.

Knows nothing of: whether it lies on a server or in a folder.
"""

from __future__ import annotations

from rowmill.errors import BadSink
from rowmill.sink_address import SinkAddress
from rowmill.write.keyed.wanted import Metric, Wanted

DISTANCES: dict[Metric, str] = {"cosine": "Cosine", "l2": "Euclid", "dot": "Dot"}
MOST_KEYS = 500
"""Of a filter."""


def check_distance(address: SinkAddress, found: str, wanted: Wanted) -> None:
    """Refuse a collection of another metric. Raises: BadSink."""
    if found != DISTANCES[wanted.metric]:
        names = {distance: metric for metric, distance in DISTANCES.items()}
        reason = (
            f"`{address.text}`: its metric is {names.get(found, found)}, the job wants {wanted.metric};"
            " set `sink.metric`, or name another collection"
        )
        raise BadSink(reason=reason)


def other_dimensions(there: int, here: int) -> str:
    """What is said of a collection of other vectors."""
    return f"its vectors have {there} dimensions, the job's {here}; name another one"
