"""The outbox in SQLite: rows that the ledger's own transactions leave."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence

from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.rows import COLUMNS, recorded
from noetl.ports.clock import Clock
from noetl.ports.outbox import OutboxRow

__all__ = ["SqliteOutbox"]

_SECOND = 1_000_000
_LOOK_SECONDS = 0.02

# Index outbox_pending: the scan begins at the oldest row that is still to be told.
_DUE = """
    SELECT position, attempts
    FROM outbox
    WHERE status = 'PENDING' AND due_at <= ?
    ORDER BY position
    LIMIT ?
"""
# By primary key.
_HOLD = "UPDATE outbox SET owner = ?, due_at = ?, attempts = ? WHERE position = ?"
_EVENT = f"SELECT {COLUMNS} FROM event WHERE position = ?"
_PUBLISHED = "UPDATE outbox SET status = 'PUBLISHED', owner = NULL WHERE position = ? AND owner = ?"
_FAILED = "UPDATE outbox SET due_at = ?, owner = NULL WHERE position = ? AND owner = ?"
_SETTLED = "DELETE FROM outbox WHERE position <= ?"
# Index outbox_pending holds just these rows.
_PENDING = "SELECT count(*) FROM outbox WHERE status = 'PENDING'"
# Its first entry, and the event by primary key.
_OLDEST = """
    SELECT ingest_time
    FROM (SELECT position FROM outbox WHERE status = 'PENDING' ORDER BY position LIMIT 1)
    JOIN event USING (position)
"""

# By primary key. Rows that are settled go; the newest one is not settled before it is published.
_LAST = "SELECT coalesce(max(position), 0) FROM outbox"


class SqliteOutbox:
    """Claims are rows with an owner and a time at which they are due again, so a dead owner's claim lapses."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waited_at = 0

    async def claim(self, owner: str, *, limit: int = 100, lease_seconds: float = 30.0) -> Sequence[OutboxRow]:
        """The oldest rows that are due, held by `owner` until the lease lapses."""
        lease = int(lease_seconds * _SECOND)

        def work(connection: sqlite3.Connection) -> list[OutboxRow]:
            now = self._clock.now()
            due = connection.execute(_DUE, (now, limit)).fetchall()
            connection.executemany(_HOLD, [(owner, now + lease, attempts + 1, position) for position, attempts in due])
            return [_row(connection, position, attempts + 1) for position, attempts in due]

        return await self._database.write(work)

    async def mark_published(self, owner: str, positions: Sequence[int]) -> int:
        """Rows that the fabric has taken; a lapsed claim that nobody else took still counts."""
        rows = [(position, owner) for position in positions]
        return await self._database.write(lambda connection: connection.executemany(_PUBLISHED, rows).rowcount)

    async def mark_failed(self, owner: str, positions: Sequence[int], *, retry_in: float) -> int:
        """Rows to be tried again later."""
        due_at = self._clock.now() + int(retry_in * _SECOND)
        rows = [(due_at, position, owner) for position in positions]
        return await self._database.write(lambda connection: connection.executemany(_FAILED, rows).rowcount)

    async def pending_count(self) -> int:
        """How many rows are not yet published."""
        return await self._database.read(lambda connection: int(connection.execute(_PENDING).fetchone()[0]))

    async def oldest(self) -> str | None:
        """When the oldest event that is not yet published was written."""
        row = await self._database.read(lambda connection: connection.execute(_OLDEST).fetchone())
        return None if row is None else row[0]

    async def wait(self, seconds: float) -> None:
        """Look for new rows every now and then: other processes write them, and SQLite tells nobody."""
        deadline = time.monotonic() + seconds
        reached = await self._last()
        while reached == self._waited_at and (left := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _LOOK_SECONDS))
            reached = await self._last()
        self._waited_at = reached

    async def _last(self) -> int:
        return await self._database.read(lambda connection: int(connection.execute(_LAST).fetchone()[0]))

    async def settle(self, position: int) -> int:
        """Forget every row at or below a position."""
        return await self._database.write(lambda connection: connection.execute(_SETTLED, (position,)).rowcount)


def _row(connection: sqlite3.Connection, position: int, attempts: int) -> OutboxRow:
    item = recorded(connection.execute(_EVENT, (position,)).fetchone())
    return OutboxRow(position=position, event=item.event, attempts=attempts)
