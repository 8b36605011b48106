"""One Postgres database: connections that are kept, and works that are tried again when one is lost.

A caller that finds no idle connection opens one itself, so that it sees why the server refused, at once and in the
server's words.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper

from noetl.adapters.postgres.address import Address
from noetl.adapters.postgres.failures import collided, explain, lost
from noetl.adapters.postgres.migrations import SCHEMA, Standing, check_standing, standing
from noetl.adapters.postgres.migrations import migrate as apply_migrations
from noetl.adapters.postgres.waiting import EagerConnection
from noetl.errors import Unavailable

__all__ = ["Connection", "Database", "Parameters", "Row", "Work"]

T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Work = Callable[[Connection], Awaitable[T]]
Row = tuple[Any, ...]
Parameters = Sequence[Any] | dict[str, Any]

ANSWER_SECONDS = 60.0
"""How long one work may take before the server counts as lost."""
_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE = 1.0
_COLLISIONS = 5
_IDLE_SECONDS = 300.0
_PREPARED = 300

# What is answered is on the server's disk, also where the server's own default is to answer earlier. A plan that is
# compiled costs more than any of our statements.
_CONFIGURE = """
    SELECT
        set_config('search_path', %(schema)s, false),
        set_config('lock_timeout', %(lock_ms)s, false),
        set_config('jit', 'off', false),
        set_config('TimeZone', 'UTC', false),
        set_config(
            'synchronous_commit',
            coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'),
            false
        )
"""


class _Doubt:
    """Whether the server may have done a work whose answer is lost."""

    exists = False


class Database:
    """A database that this release's migrations have prepared.

    `patience` is how long a work may wait for a server that is away, or for a lock that another process holds;
    `schema` is where tables are looked for, several with commas between them.
    """

    def __init__(self, url: str, *, patience: float = 10.0, connections: int = 10, schema: str = SCHEMA) -> None:
        self.address = Address(url)
        self.patience = patience
        self._schema = schema
        self._conninfo = self.address.conninfo(connect_seconds=patience, lost_seconds=ANSWER_SECONDS)
        self._free = asyncio.Semaphore(connections)
        self._idle: list[tuple[float, Connection]] = []
        self._closed = False

    async def open(self) -> Database:
        """Look whether it is there and up to date."""
        check_standing(await self.standing(), self.address)
        return self

    async def standing(self) -> Standing:
        """What has been done to it, and what is still to be done."""

        async def work(connection: Connection, _: _Doubt) -> Standing:
            return await standing(connection, self.address)

        return await self._retried(work)

    async def migrate(self) -> list[str]:
        """Bring it up to this release; the names of the migrations that were done."""
        async with self._explained(), self._own() as connection:
            return await apply_migrations(connection, self.address)

    async def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """The rows of one statement that changes nothing."""

        async def work(connection: Connection, _: _Doubt) -> list[Row]:
            return await (await connection.execute(sql.encode(), parameters)).fetchall()

        return await self._retried(work)

    async def change(self, sql: str, parameters: Parameters = (), *, repeatable: bool = False) -> list[Row]:
        """One statement with a RETURNING, committed.

        What is `repeatable` comes to the same if it is done twice, and is done again when it is not known whether it
        was; anything else raises Unavailable then.
        """

        async def work(connection: Connection, doubt: _Doubt) -> list[Row]:
            doubt.exists = not repeatable
            return await (await connection.execute(sql.encode(), parameters)).fetchall()

        return await self._retried(work)

    async def write(self, work: Work[T], *, repeatable: bool = False) -> T:
        """Run a work in a transaction. It may run more than once, the other times in vain."""

        async def transaction(connection: Connection, doubt: _Doubt) -> T:
            await connection.execute("BEGIN")
            result = await work(connection)
            doubt.exists = not repeatable
            await connection.execute("COMMIT")
            return result

        return await self._retried(transaction)

    async def connect(self) -> Connection:
        """A connection of the caller's own, for it to close. Raises psycopg.Error."""
        connection = await EagerConnection.connect(self._conninfo, autocommit=True)
        # Numbers of one type, whatever their size: a statement is prepared once, not once for each size.
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.prepared_max = _PREPARED
        try:
            configured = {"schema": self._schema, "lock_ms": str(int(self.patience * 1000))}
            await connection.execute(_CONFIGURE, configured)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        self._closed = True
        while self._idle:
            await self._idle.pop()[1].close()

    async def _retried(self, work: Callable[[Connection, _Doubt], Awaitable[T]]) -> T:
        """Try a work until it is done, the patience is over, or it is not known whether it is done."""
        deadline = time.monotonic() + self.patience
        pause, collisions = _PAUSE_SECONDS, 0
        while True:
            doubt = _Doubt()
            try:
                async with self._taken() as connection, asyncio.timeout(ANSWER_SECONDS):
                    return await work(connection, doubt)
            except (psycopg.Error, TimeoutError) as error:
                collisions += collided(error)
                again = lost(error) and not doubt.exists and time.monotonic() < deadline
                if not again and not (collided(error) and collisions < _COLLISIONS):
                    raise explain(error, self.address, in_doubt=doubt.exists) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    @contextlib.asynccontextmanager
    async def _taken(self) -> AsyncIterator[Connection]:
        """A connection that nobody else uses meanwhile."""
        if self._closed:
            raise Unavailable(f"{self.address} is closed")
        async with self._free:
            connection = await self._take()
            try:
                yield connection
            finally:
                await self._give_back(connection)

    async def _take(self) -> Connection:
        """The connection used last, so that the others grow old and are let go."""
        while self._idle:
            _, connection = self._idle.pop()
            if _is_alive(connection):
                return connection
            await connection.close()
        return await self.connect()

    async def _give_back(self, connection: Connection) -> None:
        if self._closed or connection.closed or not await _is_settled(connection):
            await connection.close()
            return
        now = time.monotonic()
        self._idle.append((now, connection))
        while now - self._idle[0][0] > _IDLE_SECONDS:
            await self._idle.pop(0)[1].close()

    @contextlib.asynccontextmanager
    async def _own(self) -> AsyncIterator[Connection]:
        connection = await self.connect()
        try:
            yield connection
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        try:
            yield
        except (psycopg.Error, TimeoutError) as error:
            raise explain(error, self.address) from error


def _is_alive(connection: Connection) -> bool:
    """Whether nothing has come in while nobody asked: the server only speaks up to say that it hangs up."""
    if connection.closed:
        return False
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return not watch.poll(0)


async def _is_settled(connection: Connection) -> bool:
    """Whether nothing is left over of what the connection was used for; a transaction that failed is rolled back."""
    if connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        with contextlib.suppress(psycopg.Error):
            await connection.execute("ROLLBACK")
    return connection.pgconn.transaction_status == TransactionStatus.IDLE
