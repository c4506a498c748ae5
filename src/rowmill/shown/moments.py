"""Counts since 1970 or midnight -> texts: dates, times, timestamps and durations with all their digits.

Promises: every 64-bit count has a text, years outside 1 to 9999 too; equal texts mean equal counts.
Knows nothing of: Arrow, time zones.
Memory: a text a value. Time: about 0.2 us a value where all years are within 1 to 9999.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Unit = Literal["s", "ms", "us", "ns"]
Counts = npt.NDArray[np.int64]

DIGITS: dict[Unit, int] = {"s": 0, "ms": 3, "us": 6, "ns": 9}

_DAY_S = 86_400
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970."""
_NOT_A_TIME = int(np.iinfo(np.int64).min)
"""A count like others in Arrow, but numpy's word for no time."""


def date_texts(days: Counts) -> list[str]:
    """`2024-01-31` for days since 1970."""
    if _are_usual(days, 1):
        return _by_numpy(days, "D")
    return [_date(day) for day in days.tolist()]


def timestamp_texts(counts: Counts, unit: Unit) -> list[str]:
    """`2024-01-31T12:00:00.000`, as many digits as the unit has."""
    a_day = _DAY_S * 10 ** DIGITS[unit]
    if _are_usual(counts, a_day):
        return _by_numpy(counts, unit)
    texts = []
    for count in counts.tolist():
        day, rest = divmod(count, a_day)
        texts.append(f"{_date(day)}T{_clock(rest, unit)}")
    return texts


def time_texts(counts: Counts, unit: Unit) -> list[str]:
    """`12:00:00.000`; a count that no clock shows keeps its hours, or its minus."""
    return [_clock(count, unit) for count in counts.tolist()]


def duration_texts(counts: Counts, unit: Unit) -> list[str]:
    """`PT90.000S`: seconds as ISO 8601 writes them."""
    return [_duration(count, unit) for count in counts.tolist()]


def interval_text(months: int, days: int, nanoseconds: int) -> str:
    """`P1M2DT3.000000000S`: a month has no fixed length in days, nor a day in seconds."""
    return f"P{months}M{days}DT{_seconds(nanoseconds, 'ns')}S"


def _are_usual(counts: Counts, a_day: int) -> bool:
    """Whether numpy writes them all with four digits of the year."""
    if not len(counts):
        return True
    low = max(_FIRST_DAY * a_day, _NOT_A_TIME + 1)
    return low <= int(counts.min()) and int(counts.max()) < (_LAST_DAY + 1) * a_day


def _by_numpy(counts: Counts, unit: Unit | Literal["D"]) -> list[str]:
    texts: list[str] = np.datetime_as_string(counts.view(f"M8[{unit}]"), unit=unit).tolist()
    return texts


def _date(day: int) -> str:
    """Years above 9999 bear a plus, as ISO 8601 asks; the year before 1 is 0000.

    Source: Howard Hinnant, chrono-compatible date algorithms, `civil_from_days`.
    """
    era, day_of_era = divmod(day + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = era * 400 + year_of_era + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day_of_year - (153 * shifted + 2) // 5 + 1:02}"


def _clock(count: int, unit: Unit) -> str:
    digits = DIGITS[unit]
    seconds, fraction = divmod(abs(count), 10**digits)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    sign = "-" if count < 0 else ""
    behind = f".{fraction:0{digits}}" if digits else ""
    return f"{sign}{hour:02}:{minute:02}:{second:02}{behind}"


def _duration(count: int, unit: Unit) -> str:
    sign = "-" if count < 0 else ""
    return f"{sign}PT{_seconds(abs(count), unit)}S"


def _seconds(count: int, unit: Unit) -> str:
    digits = DIGITS[unit]
    seconds, fraction = divmod(abs(count), 10**digits)
    sign = "-" if count < 0 else ""
    return f"{sign}{seconds}.{fraction:0{digits}}" if digits else f"{sign}{seconds}"
