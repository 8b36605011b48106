"""tenant_cost_fact: what each tenant has used on each day, and what that comes to at the prices of the settings."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from noetl.data.history.facts.money import cost_of, price, price_of_second
from noetl.data.history.facts.telling import chosen, quoted
from noetl.history import Prices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["view"]

_GIB, _MILLION = 2**30, 1_000_000
_EXACT = "decimal(38, 9)"


def view(
    executions: DataFrame, frames: DataFrame, resources: DataFrame, compute: DataFrame, prices: Prices
) -> DataFrame:
    """Four items: seconds of work by pool, executions begun, rows of frames, and bytes that were not stored before.

    `compute` is the fact, for what is worked on may span parts; of the others parts are enough.
    """
    from pyspark.sql import functions as fn

    begun = chosen(executions.where("status = 'PENDING'"), _used("executions", "execution", "at", "1"))
    moved = chosen(frames.where("transition = 'committed'"), _used("rows", "million rows", "at", "rows"))
    first = fn.expr("row_number() OVER (PARTITION BY tenant_id, sha256 ORDER BY position)")
    stored = resources.where("action = 'stored' AND sha256 IS NOT NULL").withColumn("time", first).where("time = 1")
    kept = chosen(stored, _used("storage", "GiB", "at", "bytes"))
    worked = chosen(
        compute.where("billed_seconds > 0"), _used("compute", "second", "ended_at", "billed_seconds") | {"pool": "pool"}
    )
    used: DataFrame = reduce(lambda one, other: one.unionByName(other), [begun, moved, kept, worked])
    keys = ("tenant_id", "organization_id", "project_id", "date", "item", "pool", "unit")
    amounts = used.groupBy(*keys).agg(fn.sum("amount").alias("amount"))
    quantity = (
        f"CAST(CASE item WHEN 'rows' THEN amount / {_MILLION} WHEN 'storage' THEN amount / {_GIB} ELSE amount END "
        f"AS {_EXACT})"
    )
    unit_price = (
        f"CASE item WHEN 'executions' THEN {price(prices.execution)} WHEN 'rows' THEN {price(prices.million_rows)} "
        f"WHEN 'storage' THEN {price(prices.stored_gib)} ELSE {price_of_second(prices)} END"
    )
    return chosen(
        amounts,
        {
            **{name: name for name in keys},
            "quantity": quantity,
            "unit_price": unit_price,
            "cost": cost_of(quantity, unit_price),
            "currency": quoted(prices.currency),
        },
    )


def _used(item: str, unit: str, at: str, amount: str) -> dict[str, str]:
    return {
        **{name: name for name in ("tenant_id", "organization_id", "project_id")},
        "date": f"to_date(to_utc_timestamp({at}, current_timezone()))",
        "item": f"'{item}'",
        "pool": "CAST(NULL AS string)",
        "unit": f"'{unit}'",
        "amount": f"CAST({amount} AS decimal(28, 6))",
    }
