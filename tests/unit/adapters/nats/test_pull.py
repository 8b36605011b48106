"""Waiting for messages of a consumer: what it costs, and what happens to whoever waits when something else happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import pytest

from noetl.adapters.nats.connection import Connection, connect
from noetl.adapters.nats.queue import NatsCommandQueue
from noetl.errors import Unavailable
from tests.contracts.queue import PATIENCE, command, ids
from tests.services.nats import NatsServer, own_nats

__all__ = ["own_nats"]

# A client of NATS whose connection is cut while it greets the server drops the stream without closing it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")

T = TypeVar("T")
Servers = Callable[..., NatsServer]


async def subscriptions(server: NatsServer) -> int:
    async with httpx.AsyncClient() as client:
        found = (await client.get(f"{server.monitor}/connz")).json()["connections"]
    return sum(int(one["subscriptions"]) for one in found)


def requests(connection: Connection) -> int:
    return connection.client.stats["out_msgs"]


async def spent(connection: Connection, asking: Awaitable[object]) -> int:
    """How many messages were sent for something."""
    before = requests(connection)
    await asking
    return requests(connection) - before


async def begun(connection: Connection, asking: Awaitable[T]) -> asyncio.Future[T]:
    """Somebody who waits, and whose request is on its way."""
    before, waiting = requests(connection), asyncio.ensure_future(asking)
    async with asyncio.timeout(PATIENCE):
        while requests(connection) == before:  # noqa: ASYNC110 - a counter wakes nobody
            await asyncio.sleep(0)
    return waiting


async def test_who_asks_again_and_again_subscribes_once(own_nats: Servers) -> None:
    server = own_nats(monitored=True)
    async with connect(server.url) as connection:
        queue = NatsCommandQueue(connection)
        await queue.enqueue([command(1)])
        assert ids(await queue.lease("shared", wait=PATIENCE)) == [1]
        before = await subscriptions(server)
        for number in range(2, 12):
            waiting = asyncio.create_task(queue.lease("shared", limit=4, wait=PATIENCE))
            await queue.enqueue([command(number)])
            assert ids(await waiting) == [number]
            assert await queue.lease("shared") == []
        assert await subscriptions(server) == before


async def test_where_nothing_was_left_one_question_is_enough(own_nats: Servers) -> None:
    async with connect(own_nats().url) as connection:
        queue = NatsCommandQueue(connection)
        await queue.enqueue([command(n) for n in range(1, 5)])
        assert await spent(connection, queue.lease("other", limit=2, wait=0.1)) > 1
        assert await spent(connection, queue.lease("other", limit=2, wait=0.1)) == 1
        assert ids(await queue.lease("shared", limit=2, wait=PATIENCE)) == [1, 2]
        assert ids(await queue.lease("shared", limit=8, wait=PATIENCE)) == [3, 4]
        await queue.enqueue([command(n) for n in range(5, 8)])
        assert ids(await queue.lease("shared", limit=8, wait=PATIENCE)) == [5]
        assert ids(await queue.lease("shared", limit=8, wait=PATIENCE)) == [6, 7]


async def test_what_comes_after_somebody_has_left_goes_to_the_next_at_once(own_nats: Servers) -> None:
    async with connect(own_nats().url) as connection:
        queue = NatsCommandQueue(connection)
        await queue.lease("shared", wait=0.01)
        leaving = await begun(connection, queue.lease("shared", wait=PATIENCE))
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await connection.flush()
        await queue.enqueue([command(1)])
        async with asyncio.timeout(queue.lease_seconds / 2):
            (leased,) = await queue.lease("shared", wait=PATIENCE)
        assert leased.attempts == 1


async def test_who_waits_while_the_server_is_replaced_goes_on_waiting(own_nats: Servers) -> None:
    server = own_nats()
    async with connect(server.url, patience=PATIENCE) as connection:
        queue = NatsCommandQueue(connection)
        await queue.lease("shared", wait=0.01)
        waiting = await begun(connection, queue.lease("shared", limit=4, wait=PATIENCE))
        server.kill()
        await asyncio.to_thread(server.start)
        await queue.enqueue([command(1)])
        assert ids(await waiting) == [1]


async def test_a_server_that_says_nothing_any_more_is_told_of(own_nats: Servers) -> None:
    server = own_nats()
    async with connect(server.url, patience=1) as connection:
        queue = NatsCommandQueue(connection)
        assert await queue.lease("shared", wait=0.01) == []
        server.pause()
        async with asyncio.timeout(PATIENCE):
            assert await queue.lease("shared", wait=0.1) == []
            with pytest.raises(Unavailable, match="has not answered within 1 s"):
                await queue.lease("shared", wait=0.1)
