"""Appending to Postgres, against a raw COPY of the very same rows with the same indexes and the same durability."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks import drafts
from benchmarks.append import batch_of
from benchmarks.harness import Measurement, alternate, settle
from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.rows import COLUMNS
from noetl.kernel.stamp import Batch
from tests.services.postgres_server import Database as Place
from tests.services.postgres_server import Server, start, stop

__all__ = ["copy_ledger"]

_KEY = b"k" * 32
_BATCHES = 20
_PER_BATCH = 500


def copy_ledger() -> Measurement:
    """Batches of 500 events, one after the other; the reference copies the same rows, one commit per batch."""
    count = _BATCHES * _PER_BATCH
    with _server() as place:
        asyncio.run(_migrate(place))
        copied: dict[int, list[bytes]] = {}

        def ours(number: int) -> float:
            seconds = asyncio.run(_append_all(place, number))
            copied[number] = _rows(place, number)
            return count / seconds

        def reference(number: int) -> float:
            return count / _copy_all(place, number, copied.pop(number))

        detail = {"batches": _BATCHES, "events_per_batch": _PER_BATCH}
        return alternate("copy_ledger", "events/s", ours, reference, rounds=9, detail=detail)


@contextmanager
def _server() -> Iterator[Place]:
    """A server with its own defaults: what it has acknowledged is on the disk."""
    root = Path(tempfile.mkdtemp(prefix="noetl-bench-"))
    shutil.rmtree(root)
    server = Server(root, start(root, {"shared_buffers": "128MB", "max_wal_size": "4GB"}))
    try:
        server.database("postgres").query("CREATE DATABASE bench TEMPLATE template0")
        yield server.database("bench")
    finally:
        stop(root)


async def _migrate(place: Place) -> None:
    database = Database(place.dsn)
    await database.migrate()
    await database.close()


async def _append_all(place: Place, number: int) -> float:
    database = Database(place.dsn)
    ledger = await PostgresLedger(database, mac_key=_KEY).open()
    stream = drafts.execution(1000 + number)
    await ledger.append([Batch(stream=stream, drafts=drafts.start(1000 + number), expected_version=0)])
    prepared = [batch_of(1000 + number, index, _PER_BATCH) for index in range(_BATCHES)]
    version = 2
    settle()
    begun = time.perf_counter()
    for batch in prepared:
        await ledger.append([Batch(stream=stream, drafts=batch, expected_version=version)])
        version += len(batch)
    seconds = time.perf_counter() - begun
    await ledger.close()
    await database.close()
    return seconds


def _rows(place: Place, number: int) -> list[bytes]:
    """What ours has written, as COPY takes it, in one piece per batch; and a table like the log's for it."""
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS noetl.raw")
        connection.execute("CREATE TABLE noetl.raw (LIKE noetl.event_log_rest INCLUDING ALL)")
        wanted = f"SELECT {COLUMNS} FROM noetl.event_log WHERE execution_id = {1000 + number} AND stream_version > 2"
        with connection.cursor().copy(f"COPY ({wanted} ORDER BY position) TO STDOUT".encode()) as copy:
            rows = [bytes(row) for row in copy]
    return [b"".join(rows[start : start + _PER_BATCH]) for start in range(0, len(rows), _PER_BATCH)]


def _copy_all(place: Place, number: int, pieces: list[bytes]) -> float:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        settle()
        begun = time.perf_counter()
        for piece in pieces:
            with connection.cursor().copy(f"COPY noetl.raw ({COLUMNS}) FROM STDIN".encode()) as copy:
                copy.write(piece)
        return time.perf_counter() - begun
