"""From the outbox through a real NATS to rows: killed, wiped and purged on the way, they are what a replay gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.fabric import NatsFabric
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.adapters.sqlite.outbox import SqliteOutbox
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.ports.fabric import shard_of_event
from noetl.replay.service import Replayer
from noetl.replay.verify import Verifier
from noetl.runtime.clock import SystemClock
from noetl.runtime.marks import Marks
from noetl.runtime.publishing import Publisher
from noetl.runtime.shards import ShardProjector, Share
from tests.services.nats import NatsServer, own_nats
from tests.unit.kernel.drafts import batch, draft

__all__ = ["own_nats"]

ROOTS = [Stream("acme", f"execution/{number}") for number in range(7000, 7010)]


async def append(ledger: SqliteLedger, turn: int) -> None:
    for root in ROOTS:
        number = int(root.stream_id.rpartition("/")[2])
        steps = [
            draft("step.enter", execution_id=number, node_name=f"s{turn}", payload={"set": {f"ctx.{n}": n}})
            for n in range(5)
        ]
        if turn == 0:
            steps.insert(0, draft("playbook.initialized", execution_id=number, payload={"path": "sales/daily"}))
        await ledger.append([batch(*steps, stream=root)])


async def test_rows_are_what_a_replay_gives_whatever_happens_to_nats(
    tmp_path: Path, own_nats: Callable[..., NatsServer]
) -> None:
    server, clock, registry = own_nats(), SystemClock(), default_registry()
    database = Database(tmp_path / "ledger.db")
    ledger = await SqliteLedger(database, clock).open()
    projections = SqliteProjectionStore(database, clock)

    async def floor() -> int:
        return 0

    stop, tasks = asyncio.Event(), []
    async with connect(server.url, patience=3) as connection:
        fabric = NatsFabric(connection)
        outbox = SqliteOutbox(database, clock)
        marks = Marks(MemoryKv(clock), keep_seconds=3600)
        publisher = Publisher(ledger, outbox, fabric, clock, "test", marks=marks, floor=floor, batch=50)
        shares = [Share(index=index, count=2) for index in range(2)]
        projectors = []
        for share in shares:
            consumer = await fabric.consumer(share.name, shards=share.shards, settle_within=3)
            projectors.append(ShardProjector(ledger, projections, consumer, registry, clock, share, batch=20))
        tasks = [asyncio.create_task(publisher.run(stop, check_every=0.5, most_wait=1.0))]
        tasks += [asyncio.create_task(one.run(stop, wait=0.5, most_wait=1.0)) for one in projectors]
        for turn in range(8):
            await append(ledger, turn)
            await asyncio.sleep(0.1)
            if turn == 2:
                server.kill()
                server.start()
            if turn == 4:
                await connection.streams.purge_stream(fabric.streams.topology.events[0])
            if turn == 6:
                server.kill()
                server.wipe()
                server.start()
        last = {root: (await ledger.head(root)) for root in ROOTS}
        async with asyncio.timeout(60):
            for root in ROOTS:
                while True:
                    rows = await projections.load(root, surface="execution")
                    head = last[root]
                    if rows and head and str(head.event_id).encode() in rows[0].row:
                        break
                    assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
                    await asyncio.sleep(0.1)
        stop.set()
        await asyncio.gather(*tasks)
    replayer = Replayer(ledger, projections, registry, clock)
    for root in ROOTS:
        (first,) = await ledger.read(root, limit=1)
        (own,) = [share for share in shares if shard_of_event(first.event) in share.shards]
        found = await Verifier(ledger, projections, replayer, own.name).verify(root)
        assert found.parity, found.differences
    assert sum(one.counts.given_up for one in projectors) == 0
    await ledger.close()
    database.close()
