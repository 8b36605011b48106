"""Tier 1: what this process has read lately, as many bytes of it as it may keep."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from noetl.observe import metrics

__all__ = ["MemoryCache"]

T = TypeVar("T")

_LARGEST_SHARE = 4


class MemoryCache(Generic[T]):
    """Values by key, the least recently used of them given up first. Values are shared, so they must not change."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._kept: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self.bytes_in_use = 0

    def get(self, key: str) -> T | None:
        """The value, which counts as used now."""
        if (found := self._kept.get(key)) is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: str, value: T, size: int) -> bool:
        """Keep the value; False if it is so large that it would push out most of the others."""
        if size > self._budget // _LARGEST_SHARE:
            return False
        self.remove(key)
        self._kept[key] = (value, size)
        self.bytes_in_use += size
        while self.bytes_in_use > self._budget:
            _, (_, freed) = self._kept.popitem(last=False)
            self.bytes_in_use -= freed
            metrics.count("noetl_payload_evictions_total", "memory", "budget")
        return True

    def remove(self, key: str) -> None:
        """Forget the value, if it is there."""
        if (found := self._kept.pop(key, None)) is not None:
            self.bytes_in_use -= found[1]
