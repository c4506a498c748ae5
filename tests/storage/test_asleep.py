"""A process that was stopped in the middle of a call asks once more when it wakes, however long it slept."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError

from rowmill.storage.attempts import Attempts, GaveUpOnStore
from tests.leases.places import Clock

BROKEN = GenericError("Generic S3 error: HTTP error: error sending request")


@pytest.mark.parametrize("asleep_s", [1, 119, 10_000])
def test_a_call_that_slept_is_made_again(asleep_s: float) -> None:
    clock = Clock()
    attempts = Attempts(budget_s=120, clock=clock, pause=clock.pass_by)
    assert attempts.call(lambda _: "before") == "before"

    def act(tries: int) -> str:
        if not tries:
            clock.pass_by(asleep_s)
            raise BROKEN
        return "done"

    assert attempts.call(act) == "done"


def test_one_that_hangs_again_and_again_is_given_up() -> None:
    clock, calls = Clock(), list[int]()
    attempts = Attempts(budget_s=120, clock=clock, pause=clock.pass_by)
    attempts.call(lambda _: "before")

    def act(tries: int) -> str:
        calls.append(tries)
        clock.pass_by(600)
        raise BROKEN

    with pytest.raises(GaveUpOnStore, match="tried 2 times"):
        attempts.call(act)

    assert calls == [0, 1]
