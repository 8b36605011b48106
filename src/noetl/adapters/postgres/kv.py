"""Shared values in Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from noetl.adapters.postgres.database import Connection, Database, Row
from noetl.errors import Conflict
from noetl.ports.clock import Clock
from noetl.ports.kv import NEW, Entry, changes_between

__all__ = ["PostgresKv"]

_SECOND = 1_000_000
_LOOK_SECONDS = 0.1

_LIVE = "(expires_at IS NULL OR expires_at > %(now)s)"
# By primary key.
_FIND = f"SELECT key, value, revision FROM kv WHERE key = %(key)s AND {_LIVE}"
# Two who set the same key wait for each other here, whether it has a row or not.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended(%(key)s, 7))"
_PUT = """
    INSERT INTO kv (key, value, revision, expires_at)
    VALUES (%(key)s, %(value)s, nextval('kv_revision'), %(end)s)
    ON CONFLICT (key) DO UPDATE
    SET value = excluded.value, revision = excluded.revision, expires_at = excluded.expires_at
    RETURNING revision
"""
_DELETE = "DELETE FROM kv WHERE key = %(key)s"
# The whole table, which is small.
_LIST = f"SELECT key, value, revision FROM kv WHERE starts_with(key, %(prefix)s) AND {_LIVE} ORDER BY key"
_SWEEP = "DELETE FROM kv WHERE expires_at <= %(now)s"


class PostgresKv:
    """One row per value. A watcher looks ten times a second."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, key: str) -> Entry | None:
        """The value of a key."""
        rows = await self._database.fetch(_FIND, {"key": key, "now": self._clock.now()})
        return _entry(rows[0]) if rows else None

    async def put(self, key: str, value: bytes, *, expected: int | None = None, seconds: float | None = None) -> int:
        """Set a value."""

        async def work(connection: Connection) -> int:
            now = self._clock.now()
            await _check(connection, key, expected, now)
            await connection.execute(_SWEEP.encode(), {"now": now})
            end = None if seconds is None else now + int(seconds * _SECOND)
            found = await connection.execute(_PUT.encode(), {"key": key, "value": value, "end": end})
            row = await found.fetchone()
            assert row is not None, "a value that was set has a revision"
            return int(row[0])

        return await self._database.write(work)

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Take a value away."""

        async def work(connection: Connection) -> bool:
            is_there = await _check(connection, key, expected, self._clock.now())
            await connection.execute(_DELETE.encode(), {"key": key})
            return is_there

        return await self._database.write(work)

    async def list(self, prefix: str = "") -> Sequence[Entry]:
        """Values by prefix."""
        rows = await self._database.fetch(_LIST, {"prefix": prefix, "now": self._clock.now()})
        return [_entry(row) for row in rows]

    async def watch(self, prefix: str = "") -> AsyncIterator[Entry]:
        """What there is, and what changes."""
        known: dict[str, Entry] = {}
        while True:
            now = {entry.key: entry for entry in await self.list(prefix)}
            for entry in changes_between(known, now):
                yield entry
            known = now
            await self._clock.sleep(_LOOK_SECONDS)


def _entry(row: Row) -> Entry:
    return Entry(key=row[0], value=bytes(row[1]), revision=row[2])


async def _check(connection: Connection, key: str, expected: int | None, now: int) -> bool:
    """Whether there is a value. Raises Conflict if it is not the expected one."""
    await connection.execute(_TURN.encode(), {"key": key})
    found = await (await connection.execute(_FIND.encode(), {"key": key, "now": now})).fetchone()
    actual = NEW if found is None else int(found[2])
    if expected is not None and expected != actual:
        raise Conflict(
            f"key '{key}' is at revision {actual}, the writer expected {expected}",
            hint="read it again and decide again",
        )
    return found is not None
