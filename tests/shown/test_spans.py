"""Seconds in words."""

from __future__ import annotations

from rowmill.shown.spans import duration


def test_durations_in_words() -> None:
    assert [duration(s) for s in (0, 59.94, 185, 7625, 187_200)] == [
        "0.0 s",
        "59.9 s",
        "3m 05s",
        "2h 07m",
        "2d 04h",
    ]


def test_parts_of_a_second_keep_two_digits() -> None:
    assert [duration(s) for s in (0.026, 0.5, 0.96)] == ["0.026 s", "0.5 s", "1.0 s"]
