"""Two projectors, each with half of the executions, against one with all of them; every one is a process."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks.append_postgres import bench_database, migrate
from benchmarks.harness import Measurement, alternate, settle, workplace
from benchmarks.projector import write_steps
from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.fabric import NatsFabric
from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.projections import PostgresProjectionStore
from noetl.kernel.upcast import default_registry
from noetl.ports.fabric import shard_of_event
from noetl.replay.shares import Share
from noetl.runtime.clock import SystemClock
from noetl.runtime.shards import ShardProjector
from tests.services.emulator import running
from tests.services.nats import PASSWORD, nats_command

__all__ = ["projector_shards"]

_EXECUTIONS = 40
_STEPS = 40
_EVENTS = _EXECUTIONS * _STEPS * 8
_BATCH = 500
_PATIENCE = 120.0


def projector_shards() -> Measurement:
    """Events of 40 executions; from the moment that all processes are ready to the last one being done."""
    with bench_database() as place, tempfile.TemporaryDirectory(dir=workplace()) as folder:
        asyncio.run(migrate(place))
        with running(Path(folder).resolve() / "nats", nats_command) as (port, _):
            url = f"nats://t0:{PASSWORD}@127.0.0.1:{port}"

            def of(count: int, first: int) -> float:
                owned = asyncio.run(_publish(place.dsn, url, first, count))
                return _EVENTS / _seconds(place.dsn, url, owned)

            def ours(number: int) -> float:
                return of(2, (2 * number + 1) * 1000)

            def reference(number: int) -> float:
                return of(1, (2 * number + 2) * 1000)

            detail = {"events": _EVENTS, "executions": _EXECUTIONS, "batch": _BATCH}
            return alternate("projector_shards", "events/s", ours, reference, detail=detail)


async def _publish(dsn: str, url: str, first: int, count: int) -> list[int]:
    """Write and publish; how many events each of so many shares has."""
    database = Database(dsn)
    ledger = await PostgresLedger(database).open()
    before = await ledger.position()
    await write_steps(ledger, first, _EXECUTIONS, _STEPS)
    items = await ledger.read_all(after_position=before, limit=2 * _EVENTS)
    async with connect(url) as connection:
        for info in await connection.streams.streams_info():
            await connection.streams.delete_stream(str(info.config.name))
        fabric = NatsFabric(connection)
        await fabric.streams.ensure_events()
        await fabric.publish(items)
    await ledger.close()
    await database.close()
    by_shard = Counter(shard_of_event(item.event) for item in items)
    return [sum(by_shard[shard] for shard in Share(index=place, count=count).shards) for place in range(count)]


def _seconds(dsn: str, url: str, owned: list[int]) -> float:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Barrier(len(owned) + 1), context.Barrier(len(owned) + 1)
    processes = [
        context.Process(target=_run, args=(dsn, url, place, len(owned), events, ready, done), daemon=True)
        for place, events in enumerate(owned)
    ]
    for process in processes:
        process.start()
    ready.wait(_PATIENCE)
    begun = time.perf_counter()
    done.wait(_PATIENCE)
    seconds = time.perf_counter() - begun
    for process in processes:
        process.join(_PATIENCE)
    return seconds


def _run(dsn: str, url: str, index: int, count: int, events: int, ready: Barrier, done: Barrier) -> None:
    asyncio.run(_project(dsn, url, Share(index=index, count=count), events, ready, done))


async def _project(dsn: str, url: str, share: Share, events: int, ready: Barrier, done: Barrier) -> None:
    database, clock = Database(dsn), SystemClock()
    ledger = await PostgresLedger(database).open()
    async with connect(url) as connection:
        fabric = NatsFabric(connection)
        consumer = await fabric.consumer(share.name, shards=None if share.count == 1 else share.shards)
        projections = PostgresProjectionStore(database, clock)
        projecting = ShardProjector(ledger, projections, consumer, default_registry(), clock, share, batch=_BATCH)
        settle()
        ready.wait(_PATIENCE)
        while projecting.counts.acknowledged < events:
            await projecting.step(wait=1.0)
        done.wait(_PATIENCE)
    await ledger.close()
    await database.close()
