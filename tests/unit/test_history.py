"""Prices: what is accepted, and what is said about anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.errors import InvalidSetting
from noetl.history import Prices
from noetl.settings import load


def test_a_price_that_nobody_has_set_is_zero() -> None:
    prices = Prices()
    assert {prices.second, prices.execution, prices.million_rows, prices.stored_gib} == {0.0}
    assert prices.by_pool() == {}


def test_prices_are_settings_and_are_shown_without_an_exponent(tmp_path: Path) -> None:
    (tmp_path / "noetl.toml").write_text('[prices]\nsecond = 0.000000125\npools = ["gpu=0.0012", "spark = 3"]\n')
    settings = load(environ={"NOETL_PRICES__EXECUTION": "0.01"}, cwd=tmp_path)
    assert settings.prices.by_pool() == {"gpu": 0.0012, "spark": 3.0}
    shown = {item.name: item.text for item in settings.items()}
    assert (shown["prices.second"], shown["prices.execution"], shown["prices.stored_gib"]) == (
        "0.000000125",
        "0.01",
        "0",
    )


@pytest.mark.parametrize("value", ["-1", "cheap", "1e300", "nan", "0.0000000001", "true"])
def test_what_is_no_price_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidSetting, match="expected a price of at least 0"):
        load(environ={"NOETL_PRICES__SECOND": value}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [("gpu", "'gpu' is not pool=price"), ("=1", "'=1' is not pool=price"), ("gpu=x", "expected a price")],
)
def test_the_price_of_a_pool_is_written_as_pool_and_price(text: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=f"prices.pools: {said}"):
        Prices(pools=(text,)).by_pool()
