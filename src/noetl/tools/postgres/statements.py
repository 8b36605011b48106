"""Statements, one after another on one connection."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from noetl.kernel.event import Json
from noetl.tools.postgres.effects import EffectTable
from noetl.tools.postgres.faults import StatementFailed
from noetl.tools.postgres.pool import Connection
from noetl.tools.postgres.rows import answer_of, learn_types
from noetl.tools.sql import place_of, refuse_transaction_words, result_of
from noetl.tools.values import BadField

__all__ = ["Work", "check", "perform", "remarks_of"]

_ROLLBACK_SECONDS = 5.0
_MOST_REMARKS = 64 * 1024


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a call asks for."""

    statements: list[str]
    autocommit: bool
    timeout: float | None
    effect: EffectTable | None


def check(work: Work) -> None:
    """Refuse what could not do what it says. Raises BadField."""
    for index, statement in enumerate(work.statements):
        if "\0" in statement:  # the protocol would end the statement there and run the first half
            raise BadField(f"{place_of(index, work.statements)} contains a NUL character")
    if not work.autocommit:
        refuse_transaction_words(work.statements)
    if work.autocommit and work.effect:
        raise BadField("effect_table needs one transaction, which autocommit: true does not give")


@contextmanager
def remarks_of(connection: Connection, remarks: list[str]) -> Iterator[None]:
    """What the server remarks beside its answers is added, line by line."""

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        if sum(map(len, remarks)) < _MOST_REMARKS:
            remarks.append(f"{notice.severity}: {notice.message_primary}\n")

    connection.add_notice_handler(listen)
    try:
        yield
    finally:
        connection.remove_notice_handler(listen)


async def perform(connection: Connection, work: Work) -> Json:
    """The result of the task. Raises StatementFailed, after which nothing of a transaction remains."""
    limit = f"statement_timeout = {math.ceil(work.timeout * 1000)}" if work.timeout else ""
    if work.autocommit:
        if limit:
            await _guarded("set-up", connection, f"SET {limit}")
        return await _each_alone(connection, work)
    try:
        await _guarded("BEGIN", connection, f"BEGIN; SET LOCAL {limit}" if limit else "BEGIN")
        result = await _in_one_transaction(connection, work)
        await _guarded("COMMIT", connection, "COMMIT")
    except BaseException:
        await _roll_back(connection)
        raise
    return result


async def _in_one_transaction(connection: Connection, work: Work) -> Json:
    if work.effect is None:
        return await _run_all(connection, work)
    try:
        recorded = await work.effect.claim(connection)
        if recorded is not None:
            return recorded
        result = await _run_all(connection, work)
        await work.effect.record(connection, result)
    except psycopg.Error as error:
        raise StatementFailed("effect_table", error) from error
    return result


async def _each_alone(connection: Connection, work: Work) -> Json:
    result = await _run_all(connection, work)
    if connection.info.transaction_status != TransactionStatus.IDLE:
        await _roll_back(connection)
        raise BadField("the statements left a transaction open, which was rolled back", code="TRANSACTION_OPEN")
    return result


async def _run_all(connection: Connection, work: Work) -> Json:
    return result_of([await _run(connection, work, index) for index in range(len(work.statements))])


async def _run(connection: Connection, work: Work, index: int) -> Json:
    try:
        cursor = await connection.execute(work.statements[index].encode())
        assert cursor.pgresult is not None
        await learn_types(connection, cursor.pgresult)
        return answer_of(connection, cursor.pgresult)
    except psycopg.Error as error:
        raise StatementFailed(place_of(index, work.statements), error, work.statements[index]) from error


async def _guarded(place: str, connection: Connection, statement: str) -> None:
    try:
        await connection.execute(statement.encode())
    except psycopg.Error as error:
        raise StatementFailed(place, error) from error


async def _roll_back(connection: Connection) -> None:
    """End what is open. A connection on which that fails is not used again: the pool looks at its state."""
    if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        with suppress(psycopg.Error, TimeoutError):
            async with asyncio.timeout(_ROLLBACK_SECONDS):
                await connection.execute(b"ROLLBACK")
