"""A connection that sends at once what can be sent at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.waiting import EagerConnection

_LARGE = "x" * (8 << 20)


@pytest.fixture
async def connection(postgres_database: Database) -> AsyncIterator[EagerConnection]:
    found = await postgres_database.connect()
    assert isinstance(found, EagerConnection)
    yield found
    await found.close()


async def test_what_is_more_than_the_server_takes_at_once_arrives_whole(connection: EagerConnection) -> None:
    async with connection.pipeline():
        cursors = [await connection.execute("SELECT length(%s::TEXT)", (_LARGE,)) for _ in range(4)]
    assert [await cursor.fetchone() for cursor in cursors] == [(len(_LARGE),)] * 4


async def test_what_the_server_sends_meanwhile_keeps_nobody_from_sending(connection: EagerConnection) -> None:
    async with connection.pipeline():
        cursors = [await connection.execute("SELECT %s::TEXT", (_LARGE,)) for _ in range(4)]
    assert [await cursor.fetchone() for cursor in cursors] == [(_LARGE,)] * 4


async def test_others_go_on_while_the_server_works(connection: EagerConnection) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    task = asyncio.create_task(others())
    await connection.execute("SELECT pg_sleep(0.3)")
    task.cancel()
    assert turns > 5


async def test_a_connection_that_was_cut_off_says_so(connection: EagerConnection, postgres_database: Database) -> None:
    await postgres_database.fetch("SELECT pg_terminate_backend(%s::INT)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        await _several(connection)


async def test_a_statement_that_nobody_waits_for_any_more_is_cancelled(connection: EagerConnection) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await connection.execute("SELECT pg_sleep(60)")
    assert await (await connection.execute("SELECT 1")).fetchone() == (1,)


async def _several(connection: EagerConnection) -> None:
    async with connection.pipeline():
        for _ in range(3):
            await connection.execute("SELECT 1")
