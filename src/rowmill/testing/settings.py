"""An adapter's module and its limits, before any row."""

from __future__ import annotations

from typing import Any

from rowmill.config import EngineConfig
from rowmill.engines.channel import Gauge
from rowmill.rows import Limits, Prompts, Sampling
from rowmill.testing.broken import require

_UNKNOWN = "no_such_setting_anywhere"


def check_settings(adapter: Any, engine: EngineConfig) -> None:
    """See that good settings pass, and that an unknown one is named."""
    if hasattr(adapter, "check_options"):
        found = adapter.check_options(engine)
        require(found == [], "settings", f"`check_options` objects to good settings: {found}")
        wrong = EngineConfig.model_validate({**engine.model_dump(), _UNKNOWN: 1})
        names_it = any(_UNKNOWN in mistake for mistake in adapter.check_options(wrong))
        require(names_it, "settings", "`check_options` lets an unknown setting pass")
    if hasattr(adapter, "declare"):
        is_limits = isinstance(adapter.declare(engine), Limits)
        require(is_limits, "limits", "`declare` does not return `Limits`")


def check_limits(limits: Limits, rows: Prompts) -> None:
    """See that limits can be worked with."""
    require(limits.seats > 0, "limits", "`limits.seats` is not above 0")
    has_wires = len(rows.wires) == len(rows)
    fits = limits.takes == "ids" or has_wires
    require(fits, "limits", "`limits.takes` is `wire`: give `check_engine` rows with `wires`")
    unknown = sorted(set(limits.sampling) - set(Sampling.__struct_fields__))
    require(not unknown, "limits", f"`limits.sampling` names no field of `Sampling`: {unknown}")


def check_counters(opened: Any) -> None:
    """See that what an engine counts for itself has a place in `channel.Gauge`."""
    if hasattr(opened, "counters"):
        unknown = sorted(set(opened.counters()) - set(Gauge.__struct_fields__))
        require(not unknown, "form", f"`counters` has what `Gauge` has no field for: {unknown}")
