"""Connections that are kept between calls, a bounded number for each place.

A caller that finds no idle connection opens one itself, so that it sees why the server refused, at once and in the
server's words, and does not wait for a background task to give up.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, LiteralString

import psycopg
from psycopg.pq import TransactionStatus

from noetl.tools.postgres.credential import Place, PoolSize
from noetl.tools.postgres.prepared import Prepared
from noetl.tools.postgres.rows import ROW_ADAPTERS

__all__ = ["Connection", "Pool", "PoolExhausted", "opened"]

IDLE_SECONDS = 300.0
# What one task has set, created or locked in its session is not for the next.
_FORGET = "DISCARD ALL"
_FORGET_BUT_PREPARED = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();
DISCARD TEMP; DISCARD SEQUENCES"""
_FORGET_SECONDS = 5.0


class Connection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A session, and what was prepared in it."""

    prepared: Prepared


class PoolExhausted(Exception):
    """No connection became free in time."""


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Connection]:
    """A connection that nobody else uses, closed at the end."""
    connection = await _connect(place)
    try:
        yield connection
    finally:
        await connection.close()


async def _connect(place: Place) -> Connection:
    connection = await Connection.connect(
        place.text,
        autocommit=True,
        prepare_threshold=None,  # text goes to the server as it is, in the simple protocol
        context=ROW_ADAPTERS,
        **place.parameters,  # type: ignore[arg-type]  # libpq's parameters, which psycopg does not name
    )
    connection.prepared = Prepared()
    return connection


class Pool:
    """The connections of one event loop to one place."""

    def __init__(self, place: Place, size: PoolSize) -> None:
        self._place = place
        self.size = size
        self._free = asyncio.Semaphore(size.max_size)
        self._idle: list[tuple[float, Connection]] = []
        self._waiting = 0
        self.in_use = 0
        self._closed = False

    @asynccontextmanager
    async def connection(self, *, keeps_prepared: bool = False) -> AsyncIterator[Connection]:
        """A connection in a clean session. Raises PoolExhausted, or what the server said.

        Who uses it through `prepared` only and runs nothing that prepares may leave that to the next.
        """
        await self._take_turn()
        self.in_use += 1
        try:
            connection = await self._take()
            try:
                yield connection
            finally:
                await self._give_back(connection, _FORGET_BUT_PREPARED if keeps_prepared else _FORGET)
        finally:
            self.in_use -= 1
            self._free.release()

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        self._closed = True
        while self._idle:
            await self._idle.pop()[1].close()

    async def _take_turn(self) -> None:
        if self._free.locked() and self._waiting >= self.size.max_waiting:
            raise PoolExhausted(
                f"{self._waiting} calls are waiting for one of {self.size.max_size} connections already"
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(self.size.timeout):
                await self._free.acquire()
        except TimeoutError:
            held = f"all {self.size.max_size} connections were in use for {self.size.timeout:g} s"
            raise PoolExhausted(held) from None
        finally:
            self._waiting -= 1

    async def _take(self) -> Connection:
        """The connection used last, so that the others grow old and are let go."""
        while self._idle:
            _, connection = self._idle.pop()
            if _is_alive(connection):
                return connection
            await connection.close()
        return await _connect(self._place)

    async def _give_back(self, connection: Connection, forget: LiteralString) -> None:
        kept = False
        try:
            kept = not self._closed and await _is_clean(connection, forget)
        finally:
            if not kept:  # also when the caller is cancelled while we tidy up
                await connection.close()
        if not kept:
            return
        now = time.monotonic()
        self._idle.append((now, connection))
        while len(self._idle) > max(1, self.size.min_size) and now - self._idle[0][0] > IDLE_SECONDS:
            await self._idle.pop(0)[1].close()


def _is_alive(connection: Connection) -> bool:
    """Whether nothing has come in while nobody asked: the server only speaks up to say that it hangs up.

    Costs no round trip. Where it speaks of something else, a connection is opened that was not needed.
    """
    if connection.closed:
        return False
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return not watch.poll(0)


async def _is_clean(connection: Connection, forget: LiteralString) -> bool:
    """Reset the session; false if it cannot be used again."""
    if connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    with suppress(psycopg.Error, TimeoutError):
        async with asyncio.timeout(_FORGET_SECONDS):
            await connection.execute(forget)
        if forget == _FORGET:
            connection.prepared.forget()
        return True
    return False
