"""The herald: commands are told when they are committed, and whatever it cannot tell is left to the outbox."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.queue import MemoryCommandQueue
from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.queue import NatsCommandQueue
from noetl.errors import Unavailable
from noetl.kernel.event import Envelope, Ref
from noetl.ports.queue import QueuedCommand
from noetl.runtime.herald import Herald
from noetl.runtime.requeue import command_of
from noetl.settings import Settings
from tests.scribe import START
from tests.services.nats import NatsServer
from tests.unit.kernel.drafts import draft
from tests.unit.replay.shop import Shop


class Slow(MemoryCommandQueue):
    """A queue that answers when it is told to, or refuses."""

    def __init__(self) -> None:
        super().__init__(VirtualClock(START))
        self.asked = 0
        self.answers = asyncio.Event()
        self.away = False

    async def enqueue(self, commands: Sequence[QueuedCommand], *, again: bool = False) -> None:
        self.asked += 1
        await self.answers.wait()
        if self.away:
            raise Unavailable("nobody answers")
        await super().enqueue(commands, again=again)


@pytest.fixture
async def issued() -> Sequence[Envelope]:
    own = {"aggregate_type": "command", "command_id": Ref(0), "node_name": "load"}
    return await Shop().write(
        draft("playbook.initialized", payload={"path": "sales/daily"}),
        draft("command.issued", payload={"kind": "python"}, **{**own, "command_id": Ref(1)}),
    )


async def told(queue: MemoryCommandQueue) -> list[int]:
    return [one.command.event_id for one in await queue.lease("shared", limit=10)]


async def test_a_command_is_in_the_queue_once_however_often_it_is_told(issued: Sequence[Envelope]) -> None:
    queue = MemoryCommandQueue(VirtualClock(START))
    herald = Herald(queue)
    herald.tell(issued)
    await asyncio.sleep(0)
    await queue.enqueue([command for event in issued if (command := command_of(event)) is not None])  # by the outbox
    assert await told(queue) == [issued[1].event_id]


async def test_nobody_waits_for_a_queue_that_is_slow_or_hears_of_one_that_is_away(issued: Sequence[Envelope]) -> None:
    queue = Slow()
    herald = Herald(queue)
    for _ in range(1000):
        herald.tell(issued)
    await asyncio.sleep(0)
    assert queue.asked == 64  # the rest is left to the outbox
    queue.away = True
    queue.answers.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    queue.away = False
    herald.tell(issued)
    await asyncio.sleep(0)
    assert await told(queue) == [issued[1].event_id]


async def test_what_is_on_its_way_at_the_end_is_let_go(issued: Sequence[Envelope]) -> None:
    queue = Slow()
    herald = Herald(queue)
    herald.tell(issued)
    await asyncio.sleep(0)
    await herald.close()
    queue.answers.set()
    assert await told(queue) == []


async def test_without_a_queue_nothing_is_told(issued: Sequence[Envelope]) -> None:
    herald = Herald()
    herald.tell(issued)
    await herald.close()


async def test_it_begins_to_tell_when_nats_comes(
    tmp_path: Path, issued: Sequence[Envelope], caplog: pytest.LogCaptureFixture
) -> None:
    server = NatsServer(tmp_path / "nats")
    settings = msgspec.convert({"nats": {"url": server.url, "patience": 0.5}}, Settings)
    herald = Herald()
    serving = asyncio.create_task(herald.serve(settings))
    try:
        with caplog.at_level(logging.WARNING):
            async with asyncio.timeout(30):
                while "told by the outbox alone" not in caplog.text:  # noqa: ASYNC110 - a log wakes nobody
                    await asyncio.sleep(0.05)
        await asyncio.to_thread(server.start)
        async with connect(server.url) as connection, asyncio.timeout(60):
            queue = NatsCommandQueue(connection)
            found: Sequence[object] = []
            while not found:
                herald.tell(issued)
                found = await queue.lease("shared", limit=10, wait=0.1)
            assert len(found) == 1
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        server.kill()
