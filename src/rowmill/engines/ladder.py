"""An engine that ran out of memory -> the same with settings that need less, a step at a time.

Promises: each step changes one setting, in one order, and never an answer; which steps were taken is a list of names,
so that it outlives the process and is taken again by a later start.
Knows nothing of: engines beyond what an adapter's `ladder` says; processes, files.
Memory: the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec

from rowmill import engines, errors, registry
from rowmill.config import EngineConfig
from rowmill.rows import Limits

Settings = dict[str, Any]


class Step(msgspec.Struct, frozen=True):
    """One setting that was changed."""

    setting: str
    """Field of `[engine]`."""
    given: Any
    """What the job said of it; None where it said nothing."""
    before: Any
    after: Any

    def __str__(self) -> str:
        before = "" if self.before is None else f" (was {shown(self.before)})"
        return f"`engine.{self.setting}` = {shown(self.after)}{before}"


class Ladder:
    """The steps of one engine: those taken, and the one that comes next."""

    def __init__(self, engine: EngineConfig, taken: Sequence[Step] = ()) -> None:
        self._given = engine
        self.taken = [step for step in taken if _said(engine, step.setting) == step.given]
        """A setting that the job says otherwise by now is the user's own word, and comes first."""

    @property
    def engine(self) -> EngineConfig:
        """The settings with all steps taken."""
        return changed(self._given, {step.setting: step.after for step in self.taken})

    def step_down(self, limits: Limits | None) -> Step | None:
        """Take the next step.

        Args:
            limits: what the engine said of itself when it was last open.

        Returns:
            None where there is none left.
        """
        limits = limits or _declared(self._given)
        done = {step.setting for step in self.taken}
        for setting, before, after in rungs(self.engine, limits):
            if setting not in done and before != after:
                step = Step(setting, _said(self._given, setting), before, after)
                self.taken.append(step)
                return step
        return None


def rungs(engine: EngineConfig, limits: Limits | None) -> Iterator[tuple[str, Any, Any]]:
    """(setting, value now, lower value) in the order in which they are taken."""
    adapter = registry.load("engines", engine.name)
    own = cast(
        "Callable[[EngineConfig, Limits | None], Iterator[tuple[str, Any, Any]]] | None",
        getattr(adapter, "ladder", None),
    )
    yield from own(engine, limits) if own is not None else seats_only(engine, limits)


def seats_only(engine: EngineConfig, limits: Limits | None) -> Iterator[tuple[str, Any, Any]]:
    """The ladder of an engine that says nothing of its own: half the seats."""
    seats = engine.seats or (limits.seats if limits else 0)
    if seats > 1:
        yield "seats", seats, seats // 2


def changed(engine: EngineConfig, settings: Settings) -> EngineConfig:
    """The engine with other settings."""
    return (
        EngineConfig.model_validate({**engine.model_dump(), **settings}) if settings else engine
    )


def shown(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}".replace(",", "_") if isinstance(value, int) else str(value)


def _declared(engine: EngineConfig) -> Limits | None:
    """What can be said before it was ever open."""
    try:
        return engines.declare(engine)
    except errors.ConfigError:
        return None


def _said(engine: EngineConfig, setting: str) -> Any:
    return engine.model_dump().get(setting)
