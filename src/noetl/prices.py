"""What things are said to cost. A price that nobody has set is zero: usage is counted all the same."""

from __future__ import annotations

import msgspec

from noetl.errors import InvalidSetting
from noetl.kinds import Price, parse_price

__all__ = ["Prices"]


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """The unit prices by which `tenant_cost_fact` and the costs of executions are reckoned."""

    currency: str = "EUR"
    """What amounts are in; it is only shown."""
    second: Price = Price(0.0)
    """Of a second that a worker is busy with a command or a frame."""
    pools: tuple[str, ...] = ()
    """The same where a pool has a price of its own, such as `gpu=0.0012`."""
    execution: Price = Price(0.0)
    """Of an execution that begins."""
    million_rows: Price = Price(0.0)
    """Of a million rows that frames have committed."""
    stored_gib: Price = Price(0.0)
    """Of a GiB of payloads that were not stored before."""

    def by_pool(self) -> dict[str, float]:
        """The price of a second by pool. Raises InvalidSetting."""
        found = {}
        for text in self.pools:
            pool, sign, value = text.partition("=")
            if not sign or not pool.strip():
                raise InvalidSetting(f"prices.pools: '{text}' is not pool=price", hint='write it as ["gpu=0.0012"]')
            try:
                found[pool.strip()] = float(parse_price(value.strip()))
            except InvalidSetting as error:
                raise InvalidSetting(f"prices.pools: {error.message}", hint=error.hint) from None
        return found
