"""Words of servers and libraries -> the same without the keys they may repeat.

Promises: the values of environment variables that are named as keys are, and those a setting refers to (`env:NAME`),
are in nothing that passes through here.
Knows nothing of: who spoke.
Memory: the values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

_NAMED_SO = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_LEAST_CHARS = 8
"""Shorter values are no keys, and would be found in words that tell nothing."""
_PLACE = "(hidden)"


class Secrets:
    """What is to be hidden in this process."""

    def __init__(
        self, settings: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> None:
        known = os.environ if environment is None else environment
        named = {name for name in known if _NAMED_SO.search(name)} | set(_references(settings))
        values = {known.get(name, "") for name in named}
        # The longest first: one key may begin with another.
        long = sorted((v for v in values if len(v) >= _LEAST_CHARS), key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, long))) if long else None

    def hidden(self, text: str) -> str:
        """The text without them."""
        return self._found.sub(_PLACE, text) if self._found is not None else text


def _references(value: Any) -> Iterator[str]:
    """Names of variables that settings refer to, however deep."""
    if isinstance(value, str) and value.startswith("env:"):
        yield value.removeprefix("env:")
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _references(inner)
