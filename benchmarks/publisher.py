"""Publishing from the outbox, against the raw client that publishes the very same messages asynchronously."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import nats

from benchmarks import drafts
from benchmarks.harness import Measurement, alternate, settle, workplace
from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.nats.connection import Connection, connect
from noetl.adapters.nats.fabric import NatsFabric
from noetl.adapters.sqlite import Database, SqliteLedger
from noetl.adapters.sqlite.outbox import SqliteOutbox
from noetl.kernel.stamp import Batch
from noetl.runtime.clock import SystemClock
from noetl.runtime.marks import Marks
from noetl.runtime.publishing import Publisher
from tests.services.emulator import running
from tests.services.nats import PASSWORD, nats_command

__all__ = ["publisher"]

_EVENTS = 8000
_BATCH = 500
_STREAM = "NOETL_EVT_local_s0000"


def publisher() -> Measurement:
    """SQLite's outbox to JetStream; the reference has its messages ready, and awaits acknowledgements by 500."""
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        place = Path(folder).resolve()
        with running(place / "nats", nats_command) as (port, _):
            url = f"nats://t0:{PASSWORD}@127.0.0.1:{port}"
            messages: list[tuple[str, bytes, dict[str, str]]] = []

            def ours(number: int) -> float:
                seconds = asyncio.run(_publish(place / f"ours{number}.db", url, number))
                messages[:] = asyncio.run(_stored(url))
                return _EVENTS / seconds

            def reference(_: int) -> float:
                return _EVENTS / asyncio.run(_publish_raw(url, messages))

            return alternate("publisher", "events/s", ours, reference, detail={"events": _EVENTS, "batch": _BATCH})


async def _publish(path: Path, url: str, number: int) -> float:
    database, clock = Database(path), SystemClock()
    ledger = await SqliteLedger(database, clock).open()
    await _write(ledger, 1000 + number)

    async def floor() -> int:
        return 0

    async with connect(url) as connection:
        await _empty(connection)
        fabric = NatsFabric(connection)
        await fabric.streams.ensure_events()
        publishing = Publisher(
            ledger,
            SqliteOutbox(database, clock),
            fabric,
            clock,
            "bench",
            marks=Marks(MemoryKv(clock), keep_seconds=3600),
            floor=floor,
            batch=1000,
        )
        settle()
        begun = time.perf_counter()
        assert await publishing.drain() == _EVENTS
        seconds = time.perf_counter() - begun
    database.close()
    shutil.rmtree(path, ignore_errors=True)
    return seconds


async def _write(ledger: SqliteLedger, execution_id: int) -> None:
    stream, per_batch = drafts.execution(execution_id), 800
    for first in range(0, _EVENTS // 8, per_batch // 8):
        events = [
            draft
            for offset, number in enumerate(range(first, first + per_batch // 8))
            for draft in drafts.step(execution_id, number, offset=offset * 8)
        ]
        await ledger.append([Batch(stream=stream, drafts=events)])


async def _empty(connection: Connection) -> None:
    for info in await connection.streams.streams_info():
        await connection.streams.delete_stream(str(info.config.name))


async def _stored(url: str) -> list[tuple[str, bytes, dict[str, str]]]:
    """What was published, as it lies in the stream."""
    from noetl.adapters.nats.scan import scan

    async with connect(url) as connection:
        return [
            (message.subject, message.data, dict(message.headers or {})) async for message in scan(connection, _STREAM)
        ]


async def _publish_raw(url: str, messages: list[tuple[str, bytes, dict[str, str]]]) -> float:
    async with connect(url) as connection:
        await _empty(connection)
        await NatsFabric(connection).streams.ensure_events()
    client = await nats.connect(url)
    streams = client.jetstream(publish_async_max_pending=4000)
    settle()
    begun = time.perf_counter()
    for first in range(0, len(messages), _BATCH):
        sent: list[asyncio.Future[Any]] = [
            await streams.publish_async(subject, data, headers=headers)
            for subject, data, headers in messages[first : first + _BATCH]
        ]
        await asyncio.gather(*sent)
    seconds = time.perf_counter() - begun
    assert len(messages) == _EVENTS
    await client.close()
    return seconds
