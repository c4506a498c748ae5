"""An adapter's own settings -> its own model, or the mistakes in words.

Promises: every mistake is found at once, before a row is read; an unknown key names its nearest neighbour.
Knows nothing of: which adapters exist.
Memory: none kept.
"""

from __future__ import annotations

import difflib
import importlib
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.part import meaning_of


class Options(BaseModel):
    """An adapter's settings beyond the common ones; each adapter has a subclass."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Chosen = TypeVar("Chosen", bound=Options)


def mistakes(model: type[Options], engine: EngineConfig) -> list[str]:
    """What is wrong with the options of `engine`, a sentence each; empty where all is well."""
    try:
        model.model_validate(engine.options)
    except ValidationError as error:
        return [_sentence(model, engine.name, dict(found)) for found in error.errors()]
    return []


def parse(model: type[Chosen], engine: EngineConfig) -> Chosen:
    """The options of `engine` as its adapter's model.

    Raises:
        BadJob: With every mistake.
    """
    found = mistakes(model, engine)
    if found:
        raise errors.BadJob(where=f"engine `{engine.name}`", mistakes=found)
    return model.model_validate(engine.options)


def check_version(
    library: str, found: str, oldest: tuple[int, ...], *, extra: str, expected: str
) -> None:
    """See that an adapter's library is not older than what it was written for.

    Args:
        library: its name, for people.
        found: the version that is installed.
        expected: the versions that the adapter knows, in words.

    Raises:
        ConfigError: It is older.
    """
    numbers = tuple(map(int, re.findall(r"\d+", found)[: len(oldest)]))
    if numbers and numbers < oldest:
        reason = f"{library} {found} is installed, expected {expected}; run `pip install 'rowmill[{extra}]'`"
        raise errors.ConfigError(reason=reason)


def library(
    module: str,
    name: str,
    oldest: tuple[int, ...],
    newest: tuple[int, ...],
    *,
    extra: str,
) -> Any:
    """An adapter's library, imported, of a version that it was written for.

    Args:
        name: for people.
        newest: named where an older one is refused.

    Raises:
        MissingExtra: It is not installed.
        ConfigError: It is older.
    """
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise errors.MissingExtra(what=f"`{module}`", extra=extra) from error
    known = f"{'.'.join(map(str, oldest))} to {'.'.join(map(str, newest))}"
    check_version(name, found.__version__, oldest, extra=extra, expected=known)
    return found


def _sentence(model: type[Options], name: str, found: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in found["loc"])
    if found["type"] == "extra_forbidden" and len(found["loc"]) == 1:
        known = sorted([*EngineConfig.model_fields, *model.model_fields])
        near = difflib.get_close_matches(place, known, n=1)
        hint = f"did you mean `{near[0]}`? " if near else ""
        listed = ", ".join(f"`{key}`" for key in sorted(model.model_fields)) or "none"
        return (
            f"unknown setting `engine.{place}`; {hint}engine `{name}` has of its own: {listed}"
        )
    if found["type"] == "missing":
        what = meaning_of(model, place).partition(". ")[0].rstrip(".")
        return f"`engine.{place}` is missing: {what[:1].lower()}{what[1:]}; set it"
    reason = str(found["msg"]).removeprefix("Value error, ")
    return f"`engine.{place}`: {reason[:1].lower()}{reason[1:]}" if place else reason
