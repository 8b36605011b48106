"""Commands that a queue has lost while the streams of events are whole."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.leases import MemoryLeases
from noetl.adapters.memory.queue import MemoryCommandQueue
from noetl.kernel.event import Envelope, Ref
from noetl.ports.queue import QueuedCommand
from noetl.runtime.lost_commands import LostCommands
from noetl.runtime.requeue import command_of
from tests.unit.kernel.drafts import draft
from tests.unit.replay.shop import Shop

PATIENCE = 60.0
OWN = {"aggregate_type": "command", "node_name": "load"}


class Loss:
    """An execution with one command in flight, and a queue that has forgotten it."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.leases = MemoryLeases(self.shop.clock)
        self.queue = MemoryCommandQueue(self.shop.clock)
        self.lost = LostCommands(
            self.shop.ledger, self.shop.outbox, self.shop.projections, self.leases, self.queue, self.shop.clock,
            patience=PATIENCE,
        )  # fmt: skip

    async def issue(self) -> Envelope:
        await self.shop.write(draft("playbook.initialized", payload={"path": "sales/daily"}))
        (issued,) = await self.shop.write(draft("command.issued", payload={"kind": "http"}, command_id=Ref(0), **OWN))
        await self.shop.projector.catch_up()
        return issued

    async def looks(self) -> list[int]:
        """What a look finds at once, and after the patience is over."""
        first = await self.lost.look()
        self.shop.clock.advance(PATIENCE)
        return [first, await self.lost.look()]


@pytest.fixture
def loss() -> Loss:
    return Loss()


async def test_a_command_that_nobody_has_is_put_in_again_also_under_an_event_that_was_there_before(loss: Loss) -> None:
    issued = await loss.issue()
    await loss.queue.enqueue([_queued(issued)])
    (leased,) = await loss.queue.lease("shared")
    await loss.queue.ack(leased)  # a purge comes to the same
    assert await loss.looks() == [0, 1]
    (again,) = await loss.queue.lease("shared")
    assert again.command == leased.command


async def test_what_the_queue_has_or_a_worker_holds_is_left_alone(loss: Loss) -> None:
    issued = await loss.issue()
    await loss.queue.enqueue([_queued(issued)])
    assert await loss.looks() == [0, 0]
    (leased,) = await loss.queue.lease("shared")
    await loss.queue.ack(leased)
    name = f"command/{issued.tenant_id}/{issued.organization_id}/{issued.execution_id}/{issued.command_id}"
    assert await loss.leases.take(name, "worker", seconds=10 * PATIENCE)
    assert await loss.looks() == [0, 0]


async def test_what_is_not_published_yet_is_not_lost_unless_that_takes_too_long(loss: Loss) -> None:
    await loss.issue()
    assert await loss.lost.look() == 0
    await loss.shop.write(draft("step.enter", node_name="other"))  # and nobody has settled it
    for _ in range(6):
        loss.shop.clock.advance(PATIENCE)
        assert await loss.lost.look() == 0
    assert await loss.lost.look() == 1


async def test_an_execution_that_moves_or_has_ended_is_not_looked_into(loss: Loss) -> None:
    issued = await loss.issue()
    assert await loss.lost.look() == 0
    await loss.shop.write(draft("step.enter", node_name="other"))
    await loss.shop.projector.catch_up()
    loss.shop.clock.advance(PATIENCE)
    assert await loss.looks() == [0, 1]
    await loss.shop.write(draft("command.completed", command_id=issued.command_id, **OWN))
    await loss.shop.write(draft("playbook.completed"))
    await loss.shop.projector.catch_up()
    assert await loss.looks() == [0, 0]


async def test_one_that_was_looked_into_is_left_alone_for_longer(loss: Loss) -> None:
    await loss.issue()
    assert await loss.looks() == [0, 1]
    (leased,) = await loss.queue.lease("shared")
    await loss.queue.ack(leased)
    for wait in (2, 4, 4):
        loss.shop.clock.advance((wait - 0.5) * PATIENCE)
        assert await loss.lost.look() == 0
        loss.shop.clock.advance(0.5 * PATIENCE)
        assert await loss.lost.look() == 1
        (leased,) = await loss.queue.lease("shared")
        await loss.queue.ack(leased)


def _queued(issued: Envelope) -> QueuedCommand:
    found = command_of(issued)
    assert found is not None
    return found
