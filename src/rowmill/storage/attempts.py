"""A call to a store -> its answer, through SlowDown and broken connections, within a budget of our own.

Promises: waits grow and are drawn, so that workers do not come back in step; no call is tried for longer than the
budget, of which one try uses up half at most; what is refused for good is tried once; the last error is raised as it came.
Knows nothing of: what is asked.
Memory: none.
Source: exponential back-off with equal jitter (AWS Architecture Blog, 2015). The budget is a call's own: one that
all calls share is used up by many small objects that each need one more try.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rowmill.errors import ConfigError

T = TypeVar("T")

RETRY_S = 120.0
RETRY_VARIABLE = "ROWMILL_STORE_RETRY_S"
FIRST_ANSWER_S = 15.0
"""For a store that never answered: a wrong address or missing credentials are no passing trouble."""
FIRST_WAIT_S = 0.3
MAX_WAIT_S = 20.0
NOT_FINAL = (408, 409, 425, 429)
"""Of 4xx, those that may pass."""

# obstore has one class of error for all of these and gives the status in words alone; were the words to change,
# all would be tried for the whole budget.
_STATUS = re.compile(r"status code: (\d{3})( [A-Za-z][A-Za-z -]*)?")
_CODE = re.compile(r"<Code>([A-Za-z0-9._-]{1,60})</Code>")
_CREDENTIALS = re.compile(
    r"169\.254\.|metadata\.google|Missing(SecretAccessKey|AccessKeyId)|Missing (SecretAccessKey|AccessKeyId)"
)


class Answer(NamedTuple):
    """What an error says of the store."""

    words: str
    status: int
    """0: the store did not answer."""
    lacks_credentials: bool = False


def answer_of(error: BaseException) -> Answer:
    """What a store said, without the text around it, which may hold a session token."""
    text = str(error)
    if _CREDENTIALS.search(text):
        return Answer("no credentials were found in the environment", 0, lacks_credentials=True)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status is None:
        line = text.partition("\n")[0].rpartition(" - ")[2]
        return Answer(line.partition(": ")[2] or line or type(error).__name__, 0)
    words = f"{status[1]}{(status[2] or '').rstrip()}{f', {code[1]}' if code else ''}"
    return Answer(words, int(status[1]))


def is_final(answer: Answer) -> bool:
    """Whether asking again is of no use."""
    return 400 <= answer.status < 500 and answer.status not in NOT_FINAL


class NotYet(Exception):
    """Another request for the same object was under way; to be asked again."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(answer.words)


class GaveUpOnStore(Exception):
    """The budget is used up."""

    def __init__(self, answer: Answer, tries: int, seconds: float) -> None:
        self.answer, self.tries = answer, tries
        often = f"; tried {tries} times in {seconds:.0f} s" if tries > 1 else ""
        super().__init__(answer.words + often)


def retry_s() -> float:
    """How long a call is tried, as the environment says.

    Raises: ConfigError where it says no number.
    """
    given = os.environ.get(RETRY_VARIABLE, "")
    try:
        seconds = float(given) if given else RETRY_S
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        reason = (
            f"`{RETRY_VARIABLE}` is `{given}`; set it to seconds such as 120, or not at all"
        )
        raise ConfigError(reason=reason)
    return seconds


class Attempts:
    """The budget of one store."""

    def __init__(
        self,
        *,
        budget_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._budget_s = retry_s() if budget_s is None else budget_s
        self._clock, self._pause = clock, pause
        self._random = random.Random()
        self._has_answered = False

    def call(self, act: Callable[[int], T]) -> T:
        """What `act` returns; it is told how many tries there were before, the fate of which nobody knows.

        Raises:
            GaveUpOnStore: the budget is used up.
            Exception: whatever else `act` raises.
        """
        from obstore.exceptions import GenericError

        spent_s, tries = 0.0, 0
        while True:
            began = self._clock()
            try:
                result = act(tries)
                self._has_answered = True
                return result
            except (GenericError, NotYet) as error:
                answer = error.answer if isinstance(error, NotYet) else answer_of(error)
                self._has_answered = self._has_answered or answer.status > 0
                tries += 1
                wait_s = self._wait_s(tries)
                # A process that was stopped meanwhile wakes to a broken connection: that alone is no store that is gone.
                spent_s += min(self._clock() - began, self._budget() / 2)
                is_hopeless = answer.lacks_credentials and not self._has_answered
                if is_hopeless or is_final(answer) or spent_s + wait_s > self._budget():
                    raise GaveUpOnStore(answer, tries, spent_s) from error
            self._pause(wait_s)
            spent_s += wait_s

    def _budget(self) -> float:
        return self._budget_s if self._has_answered else min(self._budget_s, FIRST_ANSWER_S)

    def _wait_s(self, tries: int) -> float:
        """At least half of what it may be, so that each wait is as long as the one before or longer."""
        most: float = min(FIRST_WAIT_S * 2.0 ** (tries - 1), MAX_WAIT_S)
        return most * (0.5 + self._random.random() / 2)
