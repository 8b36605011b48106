"""Expressions of prices: exact, and proof against odd names."""

from __future__ import annotations

from noetl.data.history.facts.money import cost_of, price, price_of_second
from noetl.data.history.facts.telling import quoted
from noetl.history import Prices
from noetl.kinds import Price


def test_a_price_is_written_out() -> None:
    assert price(0.000000125) == "CAST('0.000000125' AS decimal(18, 9))"
    assert cost_of("seconds", price(2)).startswith("CAST(CAST(seconds AS decimal(20, 9)) * CAST('2.000000000'")


def test_a_pool_with_a_price_of_its_own_has_a_case() -> None:
    assert price_of_second(Prices(second=Price(1.0))) == price(1)
    found = price_of_second(Prices(second=Price(1.0), pools=("o'brien=2",)))
    assert found == f"CASE pool WHEN 'o\\'brien' THEN {price(2)} ELSE {price(1)} END"


def test_a_text_stays_one_text() -> None:
    assert quoted("a'b\\") == "'a\\'b\\\\'"
