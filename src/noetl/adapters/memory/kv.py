"""Shared values in memory."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence

import msgspec

from noetl.adapters.memory.waiting import Waiting
from noetl.errors import Conflict
from noetl.ports.clock import Clock
from noetl.ports.kv import NEW, Entry, changes_between

__all__ = ["MemoryKv"]

_SECOND = 1_000_000
_FOREVER = 1 << 62


class _Value(msgspec.Struct, frozen=True):
    entry: Entry
    expires_at: int


class MemoryKv:
    """Values by key. A value whose time is up is not there, and goes when somebody looks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[str, _Value] = {}
        self._revisions = itertools.count(1)
        self._waiting = Waiting(clock)

    async def get(self, key: str) -> Entry | None:
        """The value of a key."""
        return self._live().get(key)

    async def put(self, key: str, value: bytes, *, expected: int | None = None, seconds: float | None = None) -> int:
        """Set a value."""
        self._check(key, expected)
        revision = next(self._revisions)
        end = _FOREVER if seconds is None else self._clock.now() + int(seconds * _SECOND)
        self._values[key] = _Value(Entry(key=key, value=bytes(value), revision=revision), end)
        self._waiting.wake()
        return revision

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Take a value away."""
        self._check(key, expected)
        next(self._revisions)
        there = self._values.pop(key, None) is not None
        self._waiting.wake()
        return there

    async def list(self, prefix: str = "") -> Sequence[Entry]:
        """Values by prefix."""
        live = self._live()
        return [live[key] for key in sorted(live) if key.startswith(prefix)]

    async def watch(self, prefix: str = "") -> AsyncIterator[Entry]:
        """What there is, and what changes."""
        known: dict[str, Entry] = {}
        while True:
            changed = self._waiting.changed
            now = {entry.key: entry for entry in await self.list(prefix)}
            for entry in changes_between(known, now):
                yield entry
            known = now
            due = min((value.expires_at for value in self._values.values()), default=_FOREVER)
            await self._waiting.until(min(due, self._clock.now() + 60 * _SECOND), _FOREVER, changed)

    def _live(self) -> dict[str, Entry]:
        now = self._clock.now()
        for key in [key for key, value in self._values.items() if value.expires_at <= now]:
            del self._values[key]
        return {key: value.entry for key, value in self._values.items()}

    def _check(self, key: str, expected: int | None) -> None:
        found = self._live().get(key)
        actual = NEW if found is None else found.revision
        if expected is not None and expected != actual:
            raise Conflict(
                f"key '{key}' is at revision {actual}, the writer expected {expected}",
                hint="read it again and decide again",
            )
