"""A failed attempt -> how long to wait, or the word to give up.

Promises: no more than `max_attempts`; a wait named by the server is kept to and never cut short;
waits are spread, so that rows that failed together do not come back together.
Knows nothing of: engines, sockets, rows. The clock is the caller's.
Memory: none kept.
Source: exponential back-off with equal jitter, as AWS describes it (Brooker, 2015, AWS Architecture Blog). With full jitter a
row may draw short waits only and have used up its attempts in a few seconds, while others outlast an outage of ten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

_FIXED_SHARE = 0.5
"""Of a wait that nobody named: the rest is drawn."""
_SPREAD_SHARE = 0.25
_SPREAD_S = 2.0
_DOUBLED_WHERE_WELL = 1
"""Waiting longer and longer is for a server that has too much to do; a row that was unlucky twice waits for nothing."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How stubborn to be with one row."""

    max_attempts: int = 6
    """Attempts in all, the first one included."""
    first_wait_s: float = 0.5
    """Longest wait after the first attempt; doubled with each."""
    max_wait_s: float = 120.0
    """Longest single wait; a server that names a longer one is not waited for."""
    budget_s: float = 3600.0
    """Longest time from the first attempt's start to the last one's."""


class Wait(msgspec.Struct, frozen=True):
    """Try again after this many seconds."""

    seconds: float


class GiveUp(msgspec.Struct, frozen=True):
    """Do not try again; `reason` ends a sentence that tells the last failure."""

    reason: str


def after_failure(
    policy: Policy,
    *,
    attempts: int,
    elapsed_s: float,
    retry_after_s: float | None,
    draw: Callable[[], float],
    is_well: bool = False,
) -> Wait | GiveUp:
    """What to do after an attempt failed in a way that may pass.

    Args:
        policy: How stubborn to be.
        attempts: Made so far, this one included.
        elapsed_s: Since the first attempt began.
        retry_after_s: The server's own word, None where it said nothing readable.
        draw: Uniform over 0 to 1.
        is_well: Whether the server answers most of what else it is asked: then waits do not grow without end.
    """
    if attempts >= policy.max_attempts:
        return GiveUp(f"after {attempts} attempts")
    if retry_after_s is None:
        most = _DOUBLED_WHERE_WELL if is_well else 60
        ceiling = policy.first_wait_s * 2.0 ** min(attempts - 1, most)
        share = _FIXED_SHARE + (1 - _FIXED_SHARE) * draw()
        wait_s = min(policy.max_wait_s, ceiling) * share
    elif retry_after_s > policy.max_wait_s:
        return GiveUp(
            f"the server asks to wait {retry_after_s:.0f} s, more than"
            f" `engine.max_wait_s` = {policy.max_wait_s:g}"
        )
    else:
        wait_s = retry_after_s + draw() * min(
            _SPREAD_S, _SPREAD_SHARE * max(1.0, retry_after_s)
        )
    if elapsed_s + wait_s > policy.budget_s:
        return GiveUp(f"after {attempts} attempts in {elapsed_s:.0f} s")
    return Wait(wait_s)


def asked_wait(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Seconds that a response asks to wait: `retry-after-ms` of some, else `Retry-After`; None where it says nothing."""
    exact = headers.get("retry-after-ms", "")
    seconds = read_retry_after(exact, now=now) if exact[:1].isdigit() else None
    if seconds is not None:
        return seconds / 1000
    header = headers.get("Retry-After", "")
    return read_retry_after(header, now=now) if header else None


def read_retry_after(header: str, *, now: datetime) -> float | None:
    """Seconds that a `Retry-After` header names, as a number or a date; None where it is neither."""
    text = header.strip()
    try:
        seconds = float(text)
    except ValueError:
        return _until(text, now)
    # `nan` and `inf` are floats to Python, but no time to wait.
    return max(0.0, seconds) if seconds - seconds == 0 else None


def _until(text: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
