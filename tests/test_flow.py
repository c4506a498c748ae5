"""Windows from one thread to another."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from rowmill.flow import Buffer, Keeper, calm_interpreter, drain, fill


def one(_: object) -> float:
    return 1.0


def test_all_things_come_through_in_order() -> None:
    buffer: Buffer[int] = Buffer(3)
    fill(buffer, iter(range(1000)), one, name="t")

    assert list(range(1000)) == list(drain(buffer))
    assert buffer.is_drained


def test_what_waits_is_bounded() -> None:
    made: list[int] = []

    def things() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            yield i

    buffer: Buffer[int] = Buffer(5)
    fill(buffer, things(), one, name="t")
    for taken in range(1, 50):
        assert buffer.take(5.0) is not None
        # One more than fits may be in the filler's hands.
        assert len(made) <= taken + 6
    buffer.close()


def test_an_error_is_raised_where_things_are_taken_and_not_before_them() -> None:
    def things() -> Iterator[int]:
        yield 1
        raise KeyError

    buffer: Buffer[int] = Buffer(5)
    fill(buffer, things(), one, name="t")

    assert 1 == buffer.take(5.0)
    with pytest.raises(KeyError):
        buffer.take(5.0)


def test_closing_ends_the_filling_thread() -> None:
    buffer: Buffer[int] = Buffer(1)
    fill(buffer, iter(range(10**9)), one, name="t")
    buffer.take(5.0)

    buffer.close()

    assert not is_filled(buffer)
    assert buffer.is_drained


def test_what_the_filling_side_is_at_when_nobody_takes_more_is_done_before_the_end() -> None:
    buffer = Buffer[int](10)
    begun = threading.Event()
    written: list[str] = []

    def things() -> Iterator[int]:
        begun.set()
        time.sleep(0.3)
        written.append("a claim")
        yield 1

    fill(buffer, things(), one, name="t")
    begun.wait(5.0)
    buffer.close()

    assert written == ["a claim"]


def test_a_filling_side_that_hangs_is_not_waited_for_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rowmill.flow.ENDING_S", 0.2)
    buffer = Buffer[int](10)
    goes_on = threading.Event()

    def things() -> Iterator[int]:
        goes_on.wait(30.0)
        yield 1

    fill(buffer, things(), one, name="t")
    began = time.monotonic()
    buffer.close()

    assert 0.1 < time.monotonic() - began < 5
    assert is_filled(buffer)
    goes_on.set()


def is_filled(buffer: Buffer[int]) -> bool:
    return buffer.filler is not None and buffer.filler.is_alive()


def test_a_keeper_works_when_nudged_and_keeps_its_error() -> None:
    called = threading.Event()

    def work() -> None:
        called.set()
        raise ValueError

    keeper = Keeper(work, 1000, name="k")
    keeper.nudge()
    assert called.wait(5.0)
    keeper.stop()

    assert isinstance(keeper.error, ValueError)


def test_the_interpreter_is_as_it_was_after_a_run() -> None:
    before = gc.get_threshold(), sys.getswitchinterval()
    with calm_interpreter():
        assert before != (gc.get_threshold(), sys.getswitchinterval())

    assert before == (gc.get_threshold(), sys.getswitchinterval())
