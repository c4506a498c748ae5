"""What fails in passing is tried again, with growing waits and within a budget; the rest is not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from rowmill.errors import ConfigError
from rowmill.storage.attempts import (
    FIRST_ANSWER_S,
    RETRY_VARIABLE,
    Attempts,
    GaveUpOnStore,
    answer_of,
    is_final,
    retry_s,
)
from tests.leases.places import Clock


def said(status: str, code: str) -> GenericError:
    """As obstore words it."""
    body = f"<Error><Code>{code}</Code><Message>m</Message><Token-0>hush</Token-0></Error>"
    return GenericError(
        "Generic S3 error: Error performing PUT http://h/b/k in 5ms - Server returned non-2xx"
        f" status code: {status}: <?xml version='1.0'?>\n{body}\n\nDebug source:\nGeneric"
    )


SLOW_DOWN = said("503 Service Unavailable", "SlowDown")
NO_ANSWER = GenericError(
    "Generic S3 error: Error performing PUT http://h/b/k in 2s - HTTP error: error sending request"
)


class Store:
    """Fails by script, on a clock that waiting moves."""

    def __init__(self, *errors: Exception, forever: Exception | None = None) -> None:
        self.errors, self.forever = list(errors), forever
        self.clock, self.calls, self.waits = Clock(), list[int](), list[float]()

    def act(self, tries_before: int) -> str:
        self.calls.append(tries_before)
        error = self.errors.pop(0) if self.errors else self.forever
        if error is not None:
            raise error
        return "done"

    def attempts(self, budget_s: float = 120) -> Attempts:
        def pause(seconds: float) -> None:
            self.waits.append(seconds)
            self.clock.pass_by(seconds)

        return Attempts(budget_s=budget_s, clock=self.clock, pause=pause)


def test_what_passes_is_tried_again_with_growing_waits() -> None:
    for _ in range(50):
        store = Store(*[SLOW_DOWN] * 6)

        assert store.attempts().call(store.act) == "done"

        assert store.calls == [0, 1, 2, 3, 4, 5, 6]
        assert all(earlier <= later for earlier, later in pairwise(store.waits))
        assert sum(store.waits[:2]) >= 0.3


def test_waits_are_drawn() -> None:
    firsts = set()
    for _ in range(20):
        store = Store(SLOW_DOWN)
        store.attempts().call(store.act)
        firsts.add(store.waits[0])

    assert len(firsts) > 10


def test_the_budget_ends_it_and_the_store_is_quoted() -> None:
    store = Store(forever=SLOW_DOWN)

    with pytest.raises(GaveUpOnStore, match=r"503 Service Unavailable, SlowDown; tried \d+ ti"):
        store.attempts(60).call(store.act)

    assert 30 < store.clock.now - 1000 <= 60


def test_a_store_that_never_answered_is_given_less_time() -> None:
    store = Store(forever=NO_ANSWER)

    with pytest.raises(GaveUpOnStore, match="error sending request"):
        store.attempts().call(store.act)

    assert store.clock.now - 1000 <= FIRST_ANSWER_S


def test_a_store_that_answered_before_gets_the_whole_budget() -> None:
    store = Store()
    attempts = store.attempts()
    attempts.call(store.act)
    store.forever = NO_ANSWER

    with pytest.raises(GaveUpOnStore):
        attempts.call(store.act)

    assert store.clock.now - 1000 > FIRST_ANSWER_S


@pytest.mark.parametrize(
    "error", [said("400 Bad Request", "ExpiredToken"), said("404 Not Found", "NoSuchBucket")]
)
def test_what_is_refused_for_good_is_tried_once(error: GenericError) -> None:
    store = Store(forever=error)

    with pytest.raises(GaveUpOnStore):
        store.attempts().call(store.act)

    assert store.calls == [0]


def test_missing_credentials_are_told_at_once() -> None:
    error = GenericError("Generic S3 error: Error performing PUT http://169.254.169.254/latest")
    store = Store(forever=error)

    with pytest.raises(GaveUpOnStore, match=r"^no credentials were found in the environment$"):
        store.attempts().call(store.act)

    assert store.calls == [0]


def test_other_errors_are_not_tried_again() -> None:
    store = Store(forever=PermissionDeniedError("no"))

    with pytest.raises(PermissionDeniedError):
        store.attempts().call(store.act)

    assert store.calls == [0]


def test_an_answer_holds_nothing_of_the_text_around_it() -> None:
    answer = answer_of(said("400 Bad Request", "ExpiredToken"))

    assert answer.words == "400 Bad Request, ExpiredToken"
    assert is_final(answer)
    assert not is_final(answer_of(said("429 Too Many Requests", "x")))
    assert not is_final(answer_of(SLOW_DOWN))
    assert not is_final(answer_of(NO_ANSWER))


@pytest.mark.parametrize("given", ["soon", "-1", "inf", "nan"])
def test_a_budget_that_is_no_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv(RETRY_VARIABLE, given)

    with pytest.raises(ConfigError, match=RETRY_VARIABLE):
        retry_s()


def test_the_budget_may_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RETRY_VARIABLE, "7.5")

    assert retry_s() == 7.5
