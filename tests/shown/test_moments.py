"""Counts of time become texts with all their digits."""

from __future__ import annotations

import datetime as dt
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.shown import moments
from rowmill.shown.moments import DIGITS, Unit

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - counts without a zone
units = st.sampled_from(get_args(Unit))
counts = st.integers(-(2**63), 2**63 - 1)


def one(value: int) -> moments.Counts:
    return np.array([value], np.int64)


@given(st.datetimes())
def test_a_timestamp_is_what_datetime_says(when: dt.datetime) -> None:
    microseconds = (when - EPOCH) // dt.timedelta(microseconds=1)

    (text,) = moments.timestamp_texts(one(microseconds), "us")

    assert when.isoformat(timespec="microseconds") == text
    assert [when.date().isoformat()] == moments.date_texts(one((when - EPOCH).days))


@given(counts, units)
def test_a_timestamp_reads_back_exactly_in_any_year(count: int, unit: Unit) -> None:
    (text,) = moments.timestamp_texts(one(count), unit)

    date, clock = text.split("T")
    sign = -1 if date[0] == "-" else 1
    year, month, day = (int(part) for part in date.lstrip("+-").split("-"))
    year *= sign
    # 400 years are 146,097 days: the same day in a year that Python knows.
    cycles, inside = divmod(year - 2000, 400)
    days = (dt.date(2000 + inside, month, day) - dt.date(1970, 1, 1)).days + cycles * 146_097
    hour, minute, second = clock.split(":")
    whole, _, fraction = second.partition(".")
    seconds = ((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(whole)
    assert len(fraction) == DIGITS[unit]
    assert count == seconds * 10 ** DIGITS[unit] + int(fraction or 0)


@given(st.lists(counts, max_size=5), units)
def test_a_text_does_not_depend_on_its_neighbours(many: list[int], unit: Unit) -> None:
    alone = [moments.timestamp_texts(one(count), unit)[0] for count in many]

    assert alone == moments.timestamp_texts(np.array(many, np.int64), unit)


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "1970-01-01"),
        (-719_162, "0001-01-01"),
        (-719_163, "0000-12-31"),
        (-719_529, "-0001-12-31"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (11_016, "2000-02-29"),
    ],
)
def test_years_that_calendars_lack_have_a_sign(days: int, text: str) -> None:
    assert [text] == moments.date_texts(one(days))


def test_times_and_durations_keep_digits_and_signs() -> None:
    assert ["23:59:59"] == moments.time_texts(one(86_399), "s")
    assert ["00:00:00.000000001"] == moments.time_texts(one(1), "ns")
    assert ["25:00:00.000"] == moments.time_texts(one(90_000_000), "ms")
    assert ["-00:00:01"] == moments.time_texts(one(-1), "s")
    assert ["PT90S"] == moments.duration_texts(one(90), "s")
    assert ["-PT1.500S"] == moments.duration_texts(one(-1500), "ms")
    assert "P1M-2DT-0.000000003S" == moments.interval_text(1, -2, -3)
