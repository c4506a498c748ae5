"""The promises by name, and the error that one is broken."""

from __future__ import annotations

PROMISES = {
    "settings": "good settings pass, an unknown one is refused by name before anything is opened",
    "limits": "the open engine says what it takes, and how much",
    "once": "every row taken ends as exactly one outcome, under its own key",
    "flow": "rows that were taken are answered without waiting for more",
    "form": "outcomes have the fields of their fate, whole and finite",
    "faults": "a row that cannot be computed fails alone",
    "max_tokens": "an answer has at most `max_tokens` tokens, and says `length` only where that cut it",
    "stop": "an answer ends before its stop string, and says `stop`",
    "counts": "tokens are counted: those of the prompt as given",
    "company": "a greedy answer is the same again, in another order and beside other rows",
    "sampling": "what `limits.sampling` names is done",
    "end": "once the feed has ended and all is answered, `run` ends",
    "deaths": "an engine that is killed is started again, and its rows are answered",
}


class BrokenContract(AssertionError):
    """An adapter does not do what `rowmill.engines.protocol` says."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"`{promise}` ({PROMISES[promise]}): {what}")
        self.promise = promise


def require(is_so: bool, promise: str, otherwise: str) -> None:
    """See that something is so.

    Raises:
        BrokenContract: It is not.
    """
    if not is_so:
        raise BrokenContract(promise, otherwise)
