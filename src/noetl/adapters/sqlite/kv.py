"""Shared values in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence

from noetl.adapters.sqlite.database import Database
from noetl.errors import Conflict
from noetl.ports.clock import Clock
from noetl.ports.kv import NEW, Entry, changes_between

__all__ = ["SqliteKv"]

_SECOND = 1_000_000
_LOOK_SECONDS = 0.1

# By the unique key.
_FIND = "SELECT key, value, revision FROM kv WHERE key = ? AND (expires_at IS NULL OR expires_at > ?)"
# Replacing a row gives it the next revision.
_PUT = "INSERT OR REPLACE INTO kv (key, value, expires_at) VALUES (?, ?, ?) RETURNING revision"
_DELETE = "DELETE FROM kv WHERE key = ?"
# The whole table, which is small: a prefix is compared byte by byte, as LIKE does not.
_LIST = """
    SELECT key, value, revision
    FROM kv
    WHERE substr(key, 1, length(?)) = ? AND (expires_at IS NULL OR expires_at > ?)
    ORDER BY key
"""
_SWEEP = "DELETE FROM kv WHERE expires_at <= ?"


class SqliteKv:
    """One row per value. SQLite tells nobody of a change, so a watcher looks ten times a second."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, key: str) -> Entry | None:
        """The value of a key."""
        now = self._clock.now()
        return await self._database.read(lambda connection: _find(connection, key, now))

    async def put(self, key: str, value: bytes, *, expected: int | None = None, seconds: float | None = None) -> int:
        """Set a value."""

        def work(connection: sqlite3.Connection) -> int:
            now = self._clock.now()
            _check(key, _find(connection, key, now), expected)
            connection.execute(_SWEEP, (now,))
            end = None if seconds is None else now + int(seconds * _SECOND)
            return int(connection.execute(_PUT, (key, value, end)).fetchone()[0])

        return await self._database.write(work)

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Take a value away."""

        def work(connection: sqlite3.Connection) -> bool:
            found = _find(connection, key, self._clock.now())
            _check(key, found, expected)
            connection.execute(_DELETE, (key,))
            return found is not None

        return await self._database.write(work)

    async def list(self, prefix: str = "") -> Sequence[Entry]:
        """Values by prefix."""
        now = self._clock.now()
        return await self._database.read(
            lambda connection: [_entry(row) for row in connection.execute(_LIST, (prefix, prefix, now))]
        )

    async def watch(self, prefix: str = "") -> AsyncIterator[Entry]:
        """What there is, and what changes."""
        known: dict[str, Entry] = {}
        while True:
            now = {entry.key: entry for entry in await self.list(prefix)}
            for entry in changes_between(known, now):
                yield entry
            known = now
            await self._clock.sleep(_LOOK_SECONDS)


def _entry(row: tuple[str, bytes, int]) -> Entry:
    return Entry(key=row[0], value=row[1], revision=row[2])


def _find(connection: sqlite3.Connection, key: str, now: int) -> Entry | None:
    row = connection.execute(_FIND, (key, now)).fetchone()
    return None if row is None else _entry(row)


def _check(key: str, found: Entry | None, expected: int | None) -> None:
    actual = NEW if found is None else found.revision
    if expected is not None and expected != actual:
        raise Conflict(
            f"key '{key}' is at revision {actual}, the writer expected {expected}",
            hint="read it again and decide again",
        )
