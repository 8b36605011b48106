"""What asks for a worker, and what is asked for again after a queue was lost."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.queue import MemoryCommandQueue
from noetl.kernel.event import Ref
from noetl.runtime.requeue import command_of, enqueue_open
from tests.unit.kernel.drafts import draft, envelope
from tests.unit.replay.shop import Shop


def test_only_what_asks_for_a_worker_is_a_command() -> None:
    assert command_of(envelope("step.enter")) is None
    assert command_of(envelope("command.claimed", command_id=500)) is None
    resumed = command_of(envelope("command.resumed", command_id=500, event_id=900, payload={"kind": "http"}))
    assert resumed is not None
    assert (resumed.command_id, resumed.event_id, resumed.pool) == (500, 900, "shared")


@pytest.mark.parametrize("kind", ["stage", "spark", "transfer"])
def test_what_the_server_keeps_is_for_no_worker_unless_a_pool_is_named(kind: str) -> None:
    assert command_of(envelope("command.issued", command_id=500, payload={"kind": kind})) is None
    named = command_of(envelope("command.issued", command_id=500, payload={"kind": kind, "pool": "own"}))
    assert named is not None
    assert named.pool == "own"


async def test_a_queue_that_was_lost_gets_what_is_still_to_be_done() -> None:
    shop = Shop()
    own = {"aggregate_type": "command", "node_name": "load"}
    issued = [await shop.write(draft("command.issued", payload={"kind": "http"}, command_id=Ref(0), **own))
              for _ in range(4)]  # fmt: skip
    ids = [event.event_id for (event,) in issued]
    await shop.write(draft("command.completed", command_id=ids[0], **own))
    await shop.write(draft("command.suspended", command_id=ids[1], **own))
    await shop.write(draft("command.suspended", command_id=ids[2], **own))
    await shop.write(draft("command.resumed", command_id=ids[2], **own))
    queue = MemoryCommandQueue(shop.clock)
    assert await enqueue_open(shop.ledger, queue, after=0, upto=await shop.ledger.position()) == 2
    found = await queue.lease("shared", limit=10)
    assert sorted(one.command.command_id for one in found) == sorted([ids[2], ids[3]])
    assert await enqueue_open(shop.ledger, queue, after=1, upto=1) == 0
