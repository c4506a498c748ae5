"""Prices come with where they are from, and the user's own come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowmill.errors import ConfigError
from rowmill.size.gpus import TABLE
from rowmill.size.prices import read_prices, told


def test_every_price_that_ships_has_a_source_and_a_date() -> None:
    prices = read_prices()

    assert prices.currency
    assert prices.gpu.keys() <= TABLE.keys()
    assert all(one.source and one.read and one.hour > 0 for one in prices.gpu.values())
    assert prices.api == {}
    assert str(prices.gpu["H100"].read) in told(prices.gpu["H100"], prices.currency)


def test_the_users_file_comes_before_the_table(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        "[gpu.L4]\nhour = 0.7\n[gpu.H100]\nhour = 2\n"
        "[api.some]\nprompt_million = 1.0\noutput_million = 4.0\nbatch_share = 0.5\n"
    )

    found = read_prices(str(own))

    assert (found.gpu["L4"].hour, found.gpu["H100"].hour) == (0.7, 2.0)
    assert "H200" in found.gpu
    assert found.api["some"].of(2e6, 1e6) == pytest.approx(6.0)


@pytest.mark.parametrize("text", ["[gpu.L4]\nhuor = 1", "[gpu.L4]\nhour = 'dear'", "= 1"])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text)

    with pytest.raises(ConfigError, match="no table of prices"):
        read_prices(str(own))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prices(str(tmp_path / "none.toml"))
