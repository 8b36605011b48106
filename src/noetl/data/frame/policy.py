"""Soft limits: how long a frame may take and how much it may hold before its rest becomes a frame of its own."""

from __future__ import annotations

import time

from noetl.data.frame.protocol import Policy

__all__ = ["Allowance", "rows_within"]


class Allowance:
    """What a frame has left of its seconds and bytes. Both are soft: the row that passes one is still counted."""

    def __init__(self, policy: Policy) -> None:
        self._until = time.monotonic() + policy.max_seconds
        self._bytes = policy.max_bytes

    def take(self, size: int) -> None:
        """Count the bytes of a row, what went in and what came out."""
        self._bytes -= size

    @property
    def is_used_up(self) -> bool:
        """Whether no further row is to be begun."""
        return self._bytes <= 0 or time.monotonic() >= self._until


def rows_within(policy: Policy, rows: int, size: int) -> int:
    """How many of so many rows, of so many bytes together, go into one frame; at least one."""
    if size <= policy.max_bytes or rows <= 1:
        return rows
    return max(1, rows * policy.max_bytes // size)
