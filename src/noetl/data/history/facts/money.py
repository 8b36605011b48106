"""What things cost: amounts are exact, and in the currency of the settings."""

from __future__ import annotations

from noetl.data.history.facts.telling import quoted
from noetl.history import Prices

__all__ = ["MONEY", "cost_of", "price", "price_of_second"]

MONEY = "decimal(38, 9)"
_PRICE = "decimal(18, 9)"
_AMOUNT = "decimal(20, 9)"


def cost_of(amount: str, price: str) -> str:
    """An expression for what an amount costs at a price."""
    return f"CAST(CAST({amount} AS {_AMOUNT}) * {price} AS {MONEY})"


def price(value: float) -> str:
    """A price as an expression."""
    return f"CAST('{value:.9f}' AS {_PRICE})"


def price_of_second(prices: Prices) -> str:
    """The price of a second, by the column `pool`."""
    cases = " ".join(f"WHEN {quoted(pool)} THEN {price(value)}" for pool, value in prices.by_pool().items())
    return f"CASE pool {cases} ELSE {price(prices.second)} END" if cases else price(prices.second)
