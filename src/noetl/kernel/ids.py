"""Snowflake ids: 41 bits of milliseconds since 2024-01-01, 10 bits of node, 12 bits of sequence."""

from __future__ import annotations

from noetl.errors import InvalidInput

__all__ = ["EPOCH_MS", "MAX_ID", "MAX_NODE", "Snowflake", "compose", "node_of", "unix_ms"]

EPOCH_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z
MAX_NODE = (1 << 10) - 1
MAX_ID = (1 << 63) - 1
_MAX_SEQUENCE = (1 << 12) - 1
_NODE_SHIFT = 12
_TIME_SHIFT = 22


def compose(ms: int, node: int, sequence: int) -> int:
    """The id of the given Unix millisecond, node and sequence number."""
    return ((ms - EPOCH_MS) << _TIME_SHIFT) | (node << _NODE_SHIFT) | sequence


def unix_ms(snowflake: int) -> int:
    """The Unix time in milliseconds that an id carries."""
    return (snowflake >> _TIME_SHIFT) + EPOCH_MS


def node_of(snowflake: int) -> int:
    """The node that minted an id."""
    return (snowflake >> _NODE_SHIFT) & MAX_NODE


class Snowflake:
    """Mints ids for one node. The caller brings the time, so a simulation can bring its own.

    Ids strictly increase whatever the clock does: while it stands still the sequence counts, when the
    sequence is used up or the clock steps back the generator borrows the next millisecond.
    """

    def __init__(self, node: int) -> None:
        if not 0 <= node <= MAX_NODE:
            raise InvalidInput(f"node id {node} is outside 0..{MAX_NODE}")
        self.node = node
        self._ms = EPOCH_MS
        self._sequence = 0
        self._last = compose(EPOCH_MS, node, 0)

    def next(self, now_ms: int, after: int = 0) -> int:
        """The next id: no earlier than `now_ms`, later than every id before it and than `after`."""
        if after > self._last:
            now_ms = max(now_ms, unix_ms(after) + 1)
        if now_ms > self._ms:
            self._ms, self._sequence = now_ms, 0
        elif self._sequence < _MAX_SEQUENCE:
            self._sequence += 1
        else:
            self._ms, self._sequence = self._ms + 1, 0
        self._last = compose(self._ms, self.node, self._sequence)
        return self._last
