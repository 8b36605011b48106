"""Projecting from JetStream into Postgres, against raw upserts into the same table, one for each event."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import drafts
from benchmarks.append_postgres import bench_database, migrate
from benchmarks.harness import Measurement, alternate, settle, workplace
from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.fabric import NatsFabric
from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.projections import PostgresProjectionStore
from noetl.kernel.stamp import Batch
from noetl.kernel.upcast import default_registry
from noetl.runtime.clock import SystemClock
from noetl.runtime.shards import ShardProjector, Share
from tests.services.emulator import running
from tests.services.nats import PASSWORD, nats_command
from tests.services.postgres_server import Database as Place

__all__ = ["projector", "write_steps"]

_EXECUTIONS = 40
_STEPS = 25
_EVENTS = _EXECUTIONS * _STEPS * 8
_BATCH = 500
_UPSERT = """
    INSERT INTO projection AS known (surface, root_number, root, tenant_id, row_id, version, row, fields)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s::JSONB)
    ON CONFLICT (surface, root_number, root, tenant_id, row_id) DO UPDATE
    SET version = excluded.version, row = excluded.row, fields = excluded.fields
    WHERE excluded.version > known.version
"""


def projector() -> Measurement:
    """Events of 40 executions that ran at once; the reference writes as many rows, in commits of 500."""
    with bench_database() as place, tempfile.TemporaryDirectory(dir=workplace()) as folder:
        asyncio.run(migrate(place))
        with running(Path(folder).resolve() / "nats", nats_command) as (port, _):
            url = f"nats://t0:{PASSWORD}@127.0.0.1:{port}"

            def ours(number: int) -> float:
                return _EVENTS / asyncio.run(_project(place, url, number))

            def reference(_: int) -> float:
                return _EVENTS / _upsert(place)

            detail = {"events": _EVENTS, "executions": _EXECUTIONS, "batch": _BATCH}
            return alternate("projector", "events/s", ours, reference, detail=detail)


async def _project(place: Place, url: str, number: int) -> float:
    database, clock = Database(place.dsn), SystemClock()
    ledger = await PostgresLedger(database).open()
    first = await ledger.position()
    await write_steps(ledger, (number + 1) * 1000, _EXECUTIONS, _STEPS)
    async with connect(url) as connection:
        for info in await connection.streams.streams_info():
            await connection.streams.delete_stream(str(info.config.name))
        fabric = NatsFabric(connection)
        await fabric.streams.ensure_events()
        await fabric.publish(await ledger.read_all(after_position=first, limit=2 * _EVENTS))
        share = Share(index=0, count=1)
        consumer = await fabric.consumer(share.name)
        projections = PostgresProjectionStore(database, clock)
        projecting = ShardProjector(ledger, projections, consumer, default_registry(), clock, share, batch=_BATCH)
        settle()
        begun = time.perf_counter()
        while projecting.counts.acknowledged < _EVENTS:
            await projecting.step(wait=1.0)
        seconds = time.perf_counter() - begun
    await ledger.close()
    await database.close()
    return seconds


async def write_steps(ledger: PostgresLedger, first: int, executions: int, steps: int) -> None:
    """Step by step of all executions, as they run at the same time."""
    for number in range(steps):
        own = {one: drafts.step(one, number) for one in range(first, first + executions)}
        await asyncio.gather(
            *(ledger.append([Batch(stream=drafts.execution(one), drafts=told)]) for one, told in own.items())
        )


def _upsert(place: Place) -> float:
    """The rows of the last round once more, each as often as it takes, in a later version every time."""
    with psycopg.connect(place.dsn, options="-c search_path=noetl -c jit=off") as connection:
        found: list[tuple[Any, ...]] = connection.execute(
            "SELECT surface, root_number, root, tenant_id, row_id, row, fields::TEXT FROM projection"
            " ORDER BY root_number DESC LIMIT %s",
            [_EVENTS],
        ).fetchall()
        version = time.time_ns()
        rows = [
            (*row[:5], version + n, *row[5:]) for n, row in enumerate(itertools.islice(itertools.cycle(found), _EVENTS))
        ]
        connection.commit()
        settle()
        begun = time.perf_counter()
        for start in range(0, _EVENTS, _BATCH):
            connection.cursor().executemany(_UPSERT, rows[start : start + _BATCH])
            connection.commit()
        return time.perf_counter() - begun
