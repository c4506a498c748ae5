"""`prices.toml`, and the user's own -> what an hour of a GPU and a million tokens cost, with where that is from.

Promises: a price is told with its source; the user's file comes before the table; nothing that is paid for goes by it.
Knows nothing of: jobs.
"""

from __future__ import annotations

import datetime
import tomllib
from importlib import resources
from pathlib import Path

import msgspec

from rowmill import errors


class GpuPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one kind of GPU."""

    hour: float
    low: float = 0.0
    high: float = 0.0
    source: str = ""
    read: datetime.date | None = None
    """When it was looked up."""


class ApiPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of an endpoint."""

    prompt_million: float
    output_million: float
    batch_share: float = 1.0
    """Of these, where answers may take a day."""

    def of(self, prompt_tokens: float, output_tokens: float) -> float:
        """What it asks for so many tokens at once."""
        total = prompt_tokens * self.prompt_million + output_tokens * self.output_million
        return total / 1e6


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of a table."""

    currency: str = ""
    gpu: dict[str, GpuPrice] = {}
    api: dict[str, ApiPrice] = {}


def read_prices(path: str = "") -> Prices:
    """The table that ships, and over it the file that a user names.

    Raises:
        ConfigError: the file cannot be read, or is no such table.
    """
    shipped = _decoded(resources.files("rowmill.size").joinpath("prices.toml").read_text(), "")
    if not path:
        return shipped
    try:
        text = Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"`run.prices`: `{path}` cannot be read: {getattr(error, 'strerror', None) or error}"
        raise errors.ConfigError(reason=reason) from error
    own = _decoded(text, path)
    return Prices(
        own.currency or shipped.currency, {**shipped.gpu, **own.gpu}, {**shipped.api, **own.api}
    )


def _decoded(text: str, path: str) -> Prices:
    try:
        return msgspec.convert(tomllib.loads(text), Prices, strict=False)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        reason = (
            f"`run.prices`: `{path}` is no table of prices: {error}; docs/tune.md shows one"
        )
        raise errors.ConfigError(reason=reason) from error


def told(price: GpuPrice, currency: str) -> str:
    """A price in words."""
    between = f", {price.low:.2f} to {price.high:.2f} elsewhere" if price.high else ""
    when = f", read {price.read}" if price.read else ""
    source = f" ({price.source}{when})" if price.source else ""
    return f"{price.hour:.2f} {currency} an hour{between}{source}"
