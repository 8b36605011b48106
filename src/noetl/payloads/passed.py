"""Tables that lie in memory which processes share already: they are handed on as they are.

A table that code has returned is in a file without a name, which this process has mapped and can pass to any other of
its own. To copy it into a segment first would only help strangers. It is kept as long as a segment would be.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from noetl.observe import metrics

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PassedTables"]

_LEASE = 300 * 1_000_000


class _Kept(NamedTuple):
    table: pa.Table
    bytes: int
    until: int


class PassedTables:
    """Tables by key, within a budget; the least recently used are given up first, and all of them after a while."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.bytes_in_use = 0

    def get(self, key: str, now: int) -> pa.Table | None:
        """The table, whose time begins anew."""
        if (found := self._kept.get(key)) is None:
            return None
        self._kept[key] = found._replace(until=now + _LEASE)
        self._kept.move_to_end(key)
        return found.table

    def put(self, key: str, table: pa.Table, size: int, now: int) -> bool:
        """Keep a table; False if it alone is more than there may be."""
        if size > self._budget:
            return False
        self._remove(key)
        self._kept[key] = _Kept(table, size, now + _LEASE)
        self.bytes_in_use += size
        while self.bytes_in_use > self._budget:
            self._give_up(next(iter(self._kept)), "budget")
        return True

    def sweep(self, now: int) -> None:
        """Let go of tables that nobody has asked for in a while."""
        for key in [key for key, kept in self._kept.items() if kept.until <= now]:
            self._give_up(key, "expired")

    def clear(self) -> None:
        """Let go of all of them."""
        self._kept.clear()
        self.bytes_in_use = 0

    def _give_up(self, key: str, reason: str) -> None:
        self._remove(key)
        metrics.count("noetl_payload_evictions_total", "shared", reason)

    def _remove(self, key: str) -> None:
        if (found := self._kept.pop(key, None)) is not None:
            self.bytes_in_use -= found.bytes
