"""Short statements of several calls, sent to the server in one go.

Rows of a data stage save what they have fetched one by one, many of them at the same moment. One by one each costs a
round trip, a transaction and a clean-up of the session; together they share them. Nobody waits for company: a
statement is sent at once if a sender is free, and only what has come in meanwhile travels together. Where statements
take long, nothing is gained by that, and each gets a connection of its own. What differs in its values only is
prepared once in a session (`shapes`).

The server runs what comes together as one transaction. If one of them fails, nothing of any of them remains, and each
is run again alone, so that its neighbours never see it. A statement that was sent alone is a transaction of its own.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from typing import NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from noetl.kernel.event import Json
from noetl.tools.postgres.faults import StatementFailed
from noetl.tools.postgres.pool import Connection, Pool, PoolExhausted
from noetl.tools.postgres.rows import answer_of, learn_types
from noetl.tools.postgres.shapes import Call, Shapes
from noetl.tools.postgres.statements import Work, perform, remarks_of
from noetl.tools.sql import result_of
from noetl.tools.values import BadField

__all__ = ["Together", "may_travel"]

_SECONDS = 0.1
"""How long statements that travel together may take: each of them waits for all."""
_PATIENCE = 0.05
_CLOSE_SECONDS = 2.0
_MOST = 32
_MOST_TEXT = 64 * 1024
_MOST_RUNS = 16
"""How often a sender uses a connection before its session is cleaned up. While others wait, they follow at once."""
_OF_WRITING = "42"
"""Errors of what is written, not of what is in the tables: a parameter whose type nobody knows is one."""
_OF_DATA = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|MERGE|WITH)\b", re.IGNORECASE)
"""What may run in a transaction with others. What locks, sets or maintains something stays by itself."""


def may_travel(work: Work) -> bool:
    """Whether the work of a call is one short statement that stands for itself."""
    if not work.autocommit or work.timeout is not None or len(work.statements) != 1:
        return False
    statement = work.statements[0]
    return len(statement) <= _MOST_TEXT and _OF_DATA.match(statement) is not None


Said = tuple[Json, str]
"""A result, and what the server has remarked meanwhile."""


class _Waiting(NamedTuple):
    work: Work
    answer: asyncio.Future[Said]
    since: float


class Together:
    """The senders of one pool. They come when there is something to send, and go when there is not."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._shapes = Shapes()
        self._waiting: deque[_Waiting] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._most = 1
        """How many travel together; what statements have taken so far decides."""
        self._is_watched = False

    async def perform(self, work: Work) -> Said:
        """The result of a call; remarks are for all that have travelled together.

        Raises StatementFailed, PoolExhausted, or what the server said to a connection.
        """
        if len(self._waiting) >= self.pool.size.max_waiting:
            raise PoolExhausted("too many statements are waiting to be sent already")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(work, loop.create_future(), loop.time())
        self._waiting.append(waiting)
        if not self._senders or len(self._waiting) >= self._most:
            self._start()
        if not self._is_watched:
            self._watch(loop)
        return await waiting.answer

    async def close(self) -> None:
        """Let senders come to an end, as long as that does not take for ever, and close the connections."""
        here = asyncio.get_running_loop()
        if senders := [sender for sender in self._senders if sender.get_loop() is here]:  # a loop that ended has none
            _, stuck = await asyncio.wait(senders, timeout=_CLOSE_SECONDS)
            for sender in stuck:
                sender.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)
        await self.pool.close()

    def _start(self) -> None:
        if len(self._senders) < self.pool.size.max_size:
            sender = asyncio.create_task(self._send())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_watched = True
        loop.call_later(_PATIENCE, self._look_after, loop)

    def _look_after(self, loop: asyncio.AbstractEventLoop) -> None:
        """A sender may be stuck behind somebody's lock: then another takes what waits, as long as there is one."""
        self._is_watched = False
        limit = self.pool.size.timeout
        while self._waiting and loop.time() - self._waiting[0].since > limit:
            held = f"all {self.pool.size.max_size} connections were in use for {limit:g} s"
            _refuse(self._waiting.popleft(), PoolExhausted(held))
        if self._waiting:
            if loop.time() - self._waiting[0].since >= _PATIENCE:
                self._start()
            self._watch(loop)

    async def _send(self) -> None:
        some = self._next()
        while some:
            try:
                async with self.pool.connection(keeps_prepared=True) as connection:
                    for _ in range(_MOST_RUNS):
                        await self._run(connection, some)
                        some = self._next() if _is_idle(connection) else []
                        if not some:
                            break
            except Exception as error:
                for one in some:
                    _refuse(one, error)
                some = []
            some = some or self._next()

    def _next(self) -> list[_Waiting]:
        """Who goes next; those whose caller has gone meanwhile stay behind."""
        some: list[_Waiting] = []
        while self._waiting and len(some) < self._most:
            one = self._waiting.popleft()
            if not one.answer.done():
                some.append(one)
        return some

    async def _run(self, connection: Connection, some: list[_Waiting]) -> None:
        begun = time.perf_counter()
        remarks: list[str] = []
        calls = [self._shapes.call(one.work.statements[0]) for one in some]
        with remarks_of(connection, remarks):
            if len(some) == 1 and calls[0] is None:
                await _each(connection, some, remarks)
            elif error := await _all(connection, some, calls, remarks):
                await self._again(connection, some, calls, remarks, error)
        took = (time.perf_counter() - begun) / len(some)
        self._most = max(1, min(_MOST, 2 * self._most, int(_SECONDS / took)))

    async def _again(
        self, connection: Connection, some: list[_Waiting], calls: list[Call | None], remarks: list[str],
        error: psycopg.Error,
    ) -> None:  # fmt: skip
        """Run each as it is written. Where nothing is wrong with any, it was wrong to prepare them."""
        connection.prepared.doubt()
        is_fine = await _each(connection, some, remarks)
        if is_fine and (error.sqlstate or "").startswith(_OF_WRITING):
            for call in calls:
                if call is not None:
                    call.shape.give_up()


def _is_idle(connection: Connection) -> bool:
    return not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE


async def _all(
    connection: Connection, some: list[_Waiting], calls: list[Call | None], remarks: list[str]
) -> psycopg.Error | None:
    """Send them in one go, and tell each its answer; if one has failed, nothing of any remains."""
    texts = [one.work.statements[0] if call is None else call.text for one, call in zip(some, calls, strict=True)]
    before = connection.prepared.before(calls)
    try:
        cursor = await connection.execute(";\n".join([*before, *texts]).encode())
    except psycopg.Error as error:
        if connection.closed:
            raise StatementFailed(f"one of {len(some)} statements that were sent together", error) from error
        return error
    for _ in before:
        cursor.nextset()
    answers: list[Json] = []
    for _ in some:
        assert cursor.pgresult is not None
        if cursor.pgresult.nfields:
            await learn_types(connection, cursor.pgresult)
        answers.append(result_of([answer_of(connection, cursor.pgresult)]))
        cursor.nextset()
    for one, answer in zip(some, answers, strict=True):
        _tell(one, answer, remarks)
    return None


async def _each(connection: Connection, some: list[_Waiting], remarks: list[str]) -> bool:
    """Send one after the other, and tell each its answer; false if one has failed."""
    is_fine = True
    for one in some:
        remarks.clear()
        try:
            _tell(one, await perform(connection, one.work), remarks)
        except (StatementFailed, BadField) as error:
            if connection.closed:
                raise
            _refuse(one, error)
            is_fine = False
    return is_fine


def _tell(one: _Waiting, answer: Json, remarks: list[str]) -> None:
    if not one.answer.done():
        one.answer.set_result((answer, "".join(remarks)))


def _refuse(one: _Waiting, error: Exception) -> None:
    if not one.answer.done():
        one.answer.set_exception(error)
