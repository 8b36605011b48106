"""The appends of one process, committed in groups.

Whoever appends holds the ledger's head until its commit is on the server's disk, so one process needs one connection
for it, and all that is asked for while a commit is under way becomes the next one.

A connection that is lost during a commit leaves open whether that was done. Nobody is told before it is known: the
next attempt takes the lock, which waits for whatever is left of the first, and looks. It keeps the lock until it has
committed itself: then a statement that the server has not even begun with, because it was sent at once, comes too late.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import psycopg

from noetl.adapters.postgres.database import ANSWER_SECONDS, Connection, Database
from noetl.adapters.postgres.failures import collided, explain, lost
from noetl.adapters.postgres.plans import Append, Plan
from noetl.adapters.postgres.writer import LedgerWriter, lock
from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Envelope

__all__ = ["Commits"]

_GROUP_EVENTS = 2000
_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE = 1.0
_LANDED = "SELECT 1 FROM event_log WHERE position = %s AND envelope_checksum = %s"

Answer = Sequence[Envelope] | NoetlError


class Commits:
    """Commits appends in the order in which they were asked for."""

    def __init__(self, database: Database, writer: LedgerWriter, on_commit: Callable[[], None]) -> None:
        self._database = database
        self._writer = writer
        self._on_commit = on_commit
        self._connection: Connection | None = None
        self._waiting: list[tuple[Append, asyncio.Future[Sequence[Envelope]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def add(self, append: Append) -> Sequence[Envelope]:
        """The events once they are durable. Whoever stops waiting does not stop the commit."""
        if self._closed:
            raise Unavailable("the ledger is closed")
        future: asyncio.Future[Sequence[Envelope]] = asyncio.get_running_loop().create_future()
        self._waiting.append((append, future))
        if self._task is None:
            self._task = asyncio.create_task(self._serve())
        return await future

    async def close(self) -> None:
        """Finish what is waiting."""
        self._closed = True
        if self._task is not None:
            await self._task
        await self._disconnect()

    async def _serve(self) -> None:
        try:
            while self._waiting:
                group = self._next_group()
                answers = await self._answers([append for append, _ in group])
                for (_, future), answer in zip(group, answers, strict=True):
                    if future.done():
                        continue  # who asked has gone; what was committed stays committed
                    if isinstance(answer, NoetlError):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
                self._on_commit()
        finally:
            self._task = None

    def _next_group(self) -> list[tuple[Append, asyncio.Future[Sequence[Envelope]]]]:
        size, events = 0, 0
        while size < len(self._waiting) and (not size or events < _GROUP_EVENTS):
            events += len(self._waiting[size][0].prepared)
            size += 1
        group, self._waiting = self._waiting[:size], self._waiting[size:]
        return group

    async def _answers(self, appends: Sequence[Append]) -> Sequence[Answer]:
        try:
            return await self._commit(appends)
        except NoetlError as error:
            return [error] * len(appends)
        except Exception as error:  # a fault of ours is every caller's, and the next ones must still be served
            await self._disconnect()
            return [Unavailable(f"{self._database.address}: {error!r}")] * len(appends)

    async def _commit(self, appends: Sequence[Append]) -> Sequence[Answer]:
        """Commit, as often as it takes, and as long as it is allowed."""
        deadline = time.monotonic() + self._database.patience
        pause = _PAUSE_SECONDS
        doubtful: Plan | None = None
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    connection = await self._connected()
                    if doubtful is not None and await _landed(connection, doubtful):
                        self._writer.committed(doubtful)
                        return doubtful.answers
                    if doubtful is None:
                        doubtful = self._writer.foresee(appends)
                        if doubtful is not None and await self._writer.commit_foreseen(connection, doubtful):
                            return doubtful.answers
                    doubtful = None
                    plan = await self._writer.plan(connection, appends)
                    if not plan.checksum:
                        await connection.execute("ROLLBACK")
                        return plan.answers
                    doubtful = plan
                    await self._writer.commit(connection, plan)
                    return plan.answers
            except NoetlError:
                await self._disconnect()
                raise
            except (psycopg.Error, TimeoutError) as error:
                await self._disconnect()
                if time.monotonic() > deadline or not (lost(error) or collided(error)):
                    raise explain(error, self._database.address, in_doubt=doubtful is not None) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect()
        return self._connection

    async def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with contextlib.suppress(psycopg.Error):
                await connection.close()


async def _landed(connection: Connection, plan: Plan) -> bool:
    """Whether a commit whose answer was lost has been done. If not, the lock is kept, so that it cannot be any more."""
    await connection.execute("BEGIN")
    await lock(connection)
    found = await (await connection.execute(_LANDED, (plan.first, plan.checksum))).fetchone()
    if found is not None:
        await connection.execute("ROLLBACK")
    return found is not None
