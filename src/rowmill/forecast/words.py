"""Forecasts -> lines for people.

Promises: one place is told in full, several as a line each; a figure stands with what it rests on.
Knows nothing of: terminals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowmill.forecast.foretold import Foretold
from rowmill.forecast.probe import Estimate
from rowmill.shown.spans import amount, duration

LEAST_GAIN = 0.02


def forecast_lines(forecasts: Sequence[Foretold]) -> Iterator[str]:
    """Lines of `check`."""
    if len(forecasts) == 1:
        yield from _in_full(forecasts[0])
    elif forecasts:
        yield "forecast  no GPU here: one of each kind; `--set plan.gpu=NAME` tells one in full"
        yield from (f"  {_in_short(one)}" for one in forecasts)


def brief_lines(one: Foretold) -> Iterator[str]:
    """What a run says of itself before it begins."""
    if not one.fit.parallel:
        yield f"the model does not fit on {one.fit.gpu}, on eight of them neither"
        return
    yield f"{_time(one)}; {_bounds(one)}"
    if one.bounds.hit_rate > LEAST_GAIN:
        yield _hits(one)


def _in_short(one: Foretold) -> str:
    if not one.fit.parallel:
        return f"{one.fit.gpu:<10} the model does not fit, on eight of them neither"
    gpus = f"{one.fit.parallel}x{one.fit.gpu}" if one.fit.parallel > 1 else one.fit.gpu
    engines = f", {one.fit.replicas} engines" if one.fit.replicas > 1 else ""
    pool = f"KV cache of {one.fit.pool_tokens * one.fit.replicas:,} tokens{engines}"
    return f"{gpus:<10} {duration(one.seconds):>8}, {one.gpu_hours:.3g} GPU hours; {pool}"


def _in_full(one: Foretold) -> Iterator[str]:
    if not one.fit.parallel:
        yield f"forecast  the model does not fit on {one.fit.gpu}, on eight of them neither"
        return
    yield f"forecast  {_time(one)}"
    yield f"bounds    {_bounds(one)}"
    if one.bounds.hit_rate > LEAST_GAIN:
        yield f"cache     {_hits(one)}"
    yield f"order     {_gain(one)}"
    yield f"gpu       at work {one.gpu_busy:.0%} of the time; the last tenth of the rows takes {duration(one.tail_s)}"
    if one.preemptions:
        yield f"kv        {one.preemptions:,} rows give way for want of KV cache and are computed again"
    yield from (f"size      {name}: {why}" for name, why in one.fit.reasons.items())


def _time(one: Foretold) -> str:
    price = f", costs {amount(one.price)}" if one.price else ""
    return (
        f"{duration(one.seconds)} ({duration(one.low_s)} to {duration(one.high_s)}) on"
        f" {one.gpus} x {one.fit.gpu}, {one.gpu_hours:.3g} GPU hours{price}"
    )


def _bounds(one: Foretold) -> str:
    bounds = one.bounds
    parts = {
        "products": bounds.compute_s,
        "cache reads": bounds.cache_read_s,
        "weights": bounds.steps_s,
        "the longest answer alone": bounds.tail_s,
    }
    told = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items())
    share = bounds.ideal_s / one.seconds if one.seconds else 0.0
    return f"no schedule takes less than {duration(bounds.ideal_s)} ({told}); the forecast is {share:.0%} of that speed"


def _hits(one: Foretold) -> str:
    return (
        f"{one.hit_rate:.0%} of prompt tokens found in it as planned, {one.file_hit_rate:.0%} in the order of the"
        f" input, {one.bounds.hit_rate:.0%} with room for all"
    )


def _gain(one: Foretold) -> str:
    gain = one.file_seconds / one.seconds - 1 if one.seconds else 0.0
    if gain < LEAST_GAIN:
        return "no gain here: the order of the input takes as long"
    return f"the planned one is {gain:.0%} faster than that of the input ({duration(one.file_seconds)})"


def estimate_words(found: Estimate, *, about: str = "") -> str:
    """What a probe foretells.

    Args:
        about: where prices are from.
    """
    start = f" and {duration(found.start_s)} to start the engine" if found.start_s >= 1 else ""
    cost = ""
    if found.cost:
        told = f"; {about}" if about else ""
        cost = f", costs {amount(found.cost)} ({amount(found.low_cost)} to {amount(found.high_cost)}{told})"
    return (
        f"{duration(found.seconds)} ({duration(found.low_s)} to {duration(found.high_s)}){start},"
        f" {found.gpu_hours:.3g} GPU hours{cost}"
    )
