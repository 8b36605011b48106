"""Leases in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from noetl.adapters.sqlite.database import Database
from noetl.errors import LeaseLost
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease

__all__ = ["SqliteLeases"]

_SECOND = 1_000_000
_COLUMNS = "name, owner, token, expires_at"

# By the unique name.
_FIND = f"SELECT {_COLUMNS} FROM lease WHERE name = ?"
# Replacing a row gives it the next token.
_TAKE = f"INSERT OR REPLACE INTO lease (name, owner, expires_at) VALUES (?, ?, ?) RETURNING {_COLUMNS}"
# By primary key; the other conditions say whose it is, and that it has not lapsed.
_EXTEND = f"""
    UPDATE lease
    SET expires_at = max(expires_at, ?)
    WHERE token = ? AND name = ? AND owner = ? AND expires_at > ?
    RETURNING {_COLUMNS}
"""
_RELEASE = "DELETE FROM lease WHERE token = ? AND name = ? AND owner = ? AND expires_at > ?"
# Index lease_expiry: only what has lapsed is looked at, oldest first.
_LAPSED = f"""
    SELECT {_COLUMNS}
    FROM lease
    WHERE expires_at <= ? AND substr(name, 1, length(?)) = ?
    ORDER BY expires_at, token
    LIMIT ?
"""
_FORGET = "DELETE FROM lease WHERE token = ?"


class SqliteLeases:
    """One row per lease that is held or has lapsed; what is released or handed to a reaper is gone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def take(self, name: str, owner: str, *, seconds: float) -> Lease | None:
        """The lease if it is free, has lapsed, or is the owner's own."""

        def work(connection: sqlite3.Connection) -> Lease | None:
            now = self._clock.now()
            held = _lease(connection.execute(_FIND, (name,)).fetchone())
            if held is None or held.expires_at <= now:
                return _lease(connection.execute(_TAKE, (name, owner, _end(now, seconds))).fetchone())
            return _extend(connection, held, now, seconds) if held.owner == owner else None

        return await self._database.write(work)

    async def renew(self, lease: Lease, *, seconds: float) -> Lease:
        """The same lease with a later end."""

        def work(connection: sqlite3.Connection) -> Lease:
            renewed = _extend(connection, lease, self._clock.now(), seconds)
            if renewed is None:
                raise _lost(connection, lease)
            return renewed

        return await self._database.write(work)

    async def release(self, lease: Lease) -> None:
        """Give it back."""

        def work(connection: sqlite3.Connection) -> None:
            row = (lease.token, lease.name, lease.owner, self._clock.now())
            if not connection.execute(_RELEASE, row).rowcount:
                raise _lost(connection, lease)

        await self._database.write(work)

    async def holder(self, name: str) -> Lease | None:
        """Who holds it now."""
        held = await self._database.read(lambda connection: _lease(connection.execute(_FIND, (name,)).fetchone()))
        return held if held is not None and held.expires_at > self._clock.now() else None

    async def expire(self, prefix: str = "", *, limit: int = 100) -> Sequence[Lease]:
        """Lapsed leases, each handed out once."""

        def work(connection: sqlite3.Connection) -> list[Lease]:
            rows = connection.execute(_LAPSED, (self._clock.now(), prefix, prefix, limit)).fetchall()
            lapsed = [Lease(name=name, owner=owner, token=token, expires_at=end) for name, owner, token, end in rows]
            connection.executemany(_FORGET, [(lease.token,) for lease in lapsed])
            return lapsed

        return await self._database.write(work)


def _end(now: int, seconds: float) -> int:
    return now + int(seconds * _SECOND)


def _lease(row: tuple[str, str, int, int] | None) -> Lease | None:
    return None if row is None else Lease(name=row[0], owner=row[1], token=row[2], expires_at=row[3])


def _extend(connection: sqlite3.Connection, lease: Lease, now: int, seconds: float) -> Lease | None:
    row = (_end(now, seconds), lease.token, lease.name, lease.owner, now)
    return _lease(connection.execute(_EXTEND, row).fetchone())


def _lost(connection: sqlite3.Connection, lease: Lease) -> LeaseLost:
    held = _lease(connection.execute(_FIND, (lease.name,)).fetchone())
    taken = held is not None and held.token != lease.token
    reason = f"is now held by '{held.owner}'" if held and taken else "has lapsed or was given back"
    return LeaseLost(f"lease '{lease.name}' of '{lease.owner}' {reason}", hint="stop that work; take the lease again")
