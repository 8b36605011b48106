"""The outbox in Postgres: rows that the ledger's own transactions leave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.rows import COLUMNS, recorded
from noetl.adapters.postgres.times import NOW, end, moment
from noetl.adapters.postgres.wakeups import Wakeups
from noetl.ports.clock import Clock
from noetl.ports.outbox import OutboxRow

__all__ = ["PostgresOutbox"]

_EVENT = ", ".join(f"event_log.{name}" for name in COLUMNS.split(", "))

# What a crash of the server takes back of this is done again: a row is due once more, and the fabric knows its id. So
# nobody waits for the disk.
_LAZILY = "lazily AS (SELECT set_config('synchronous_commit', 'off', true))"
# Index outbox_pending: the scan begins at the oldest row that is still to be told, and passes over those that
# another publisher is claiming at this moment.
_CLAIM = f"""
    WITH {_LAZILY}, due AS (
        SELECT position
        FROM outbox
        WHERE status = 'PENDING' AND due_at <= {NOW}
        ORDER BY position
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ), held AS (
        UPDATE outbox
        SET owner = %(owner)s, due_at = {NOW} + %(lease)s, attempts = attempts + 1
        FROM due, lazily
        WHERE outbox.position = due.position
        RETURNING outbox.position, outbox.attempts
    )
    SELECT held.attempts, {_EVENT}
    FROM held
    JOIN event_log ON event_log.position = held.position
    ORDER BY held.position
"""
# By primary key.
_PUBLISHED = f"""
    WITH {_LAZILY}
    UPDATE outbox SET status = 'PUBLISHED', owner = NULL
    FROM lazily
    WHERE position = ANY(%(positions)s) AND owner = %(owner)s
    RETURNING 1
"""
_FAILED = f"""
    WITH {_LAZILY}
    UPDATE outbox SET due_at = {NOW} + %(delay)s, owner = NULL
    FROM lazily
    WHERE position = ANY(%(positions)s) AND owner = %(owner)s
    RETURNING 1
"""
_SETTLED = "WITH gone AS (DELETE FROM outbox WHERE position <= %s RETURNING 1) SELECT count(*) FROM gone"
# Index outbox_pending holds just these rows.
_PENDING = "SELECT count(*) FROM outbox WHERE status = 'PENDING'"
# Its first entry, and the event by primary key.
_OLDEST = """
    SELECT ingest_time
    FROM (SELECT position FROM outbox WHERE status = 'PENDING' ORDER BY position LIMIT 1) AS first
    JOIN event_log USING (position)
"""


class PostgresOutbox:
    """Claims are rows with an owner and a time at which they are due again, so a dead owner's claim lapses.

    Times are the server's unless a clock is given. A claim that was made but whose answer is lost lapses too.
    """

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock
        self._wakeups = Wakeups(database)
        self._waits = contextlib.ExitStack()
        self._moved: asyncio.Event | None = None

    async def claim(self, owner: str, *, limit: int = 100, lease_seconds: float = 30.0) -> Sequence[OutboxRow]:
        """The oldest rows that are due, held by `owner` until the lease lapses."""
        values = {"owner": owner, "limit": limit, "lease": end(lease_seconds), **moment(self._clock)}
        rows = await self._database.change(_CLAIM, values)
        return [OutboxRow(position=row[1], event=recorded(row[1:]).event, attempts=row[0]) for row in rows]

    async def mark_published(self, owner: str, positions: Sequence[int]) -> int:
        """Rows that the fabric has taken; a lapsed claim that nobody else took still counts."""
        return len(await self._database.change(_PUBLISHED, {"owner": owner, "positions": list(positions)}))

    async def mark_failed(self, owner: str, positions: Sequence[int], *, retry_in: float) -> int:
        """Rows to be tried again later."""
        values = {"owner": owner, "positions": list(positions), "delay": end(retry_in), **moment(self._clock)}
        return len(await self._database.change(_FAILED, values))

    async def pending_count(self) -> int:
        """How many rows are not yet published."""
        return int((await self._database.fetch(_PENDING))[0][0])

    async def oldest(self) -> str | None:
        """When the oldest event that is not yet published was written."""
        rows = await self._database.fetch(_OLDEST)
        return rows[0][0] if rows else None

    async def wait(self, seconds: float) -> None:
        """Woken by the commit itself. A wake-up that was lost with its connection is made up for after a while."""
        if self._moved is None:
            self._moved = self._waits.enter_context(self._wakeups.on())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        self._moved.clear()

    async def close(self) -> None:
        """Listen no more; the database belongs to whoever opened it."""
        self._waits.close()
        await self._wakeups.close()

    async def settle(self, position: int) -> int:
        """Forget every row at or below a position."""
        return int((await self._database.change(_SETTLED, (position,), repeatable=True))[0][0])
