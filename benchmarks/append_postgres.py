"""Appending to Postgres, against a raw COPY of the very same rows into the same tables with the same durability."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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

__all__ = ["bench_database", "copy_ledger", "migrate"]

_KEY = b"k" * 32
_BATCHES = 20
_PER_BATCH = 500


def copy_ledger() -> Measurement:
    """Batches of 500 events, one after the other; the reference copies the same rows, one commit per batch.

    The same rows are those of all tables: events, outbox, keys and heads. What the events alone would take is in the
    detail; it is measured last, because a copy right after another one is a quarter faster than either side's first.
    """
    count = _BATCHES * _PER_BATCH
    with bench_database() as place:
        asyncio.run(migrate(place))
        copied: dict[int, list[dict[str, bytes]]] = {}
        alone: list[float] = []

        def ours(number: int) -> float:
            seconds = asyncio.run(_append_all(place, number))
            copied[number] = _rows(place, number)
            return count / seconds

        def reference(number: int) -> float:
            pieces = copied.pop(number)
            seconds = _copy_all(place, pieces)
            alone.append(count / _copy_all(place, [{"event_log": piece["event_log"]} for piece in pieces]))
            return count / seconds

        detail = {"batches": _BATCHES, "events_per_batch": _PER_BATCH}
        found = alternate("copy_ledger", "events/s", ours, reference, rounds=9, detail=detail)
        found.detail["events_alone"] = statistics.median(alone[1:])
        return found


@contextmanager
def bench_database() -> Iterator[Place]:
    """A server with its own defaults: what it has acknowledged is on the disk."""
    root = Path(tempfile.mkdtemp(prefix="noetl-bench-"))
    shutil.rmtree(root)
    server = Server(root, start(root, {"shared_buffers": "128MB", "max_wal_size": "4GB"}))
    try:
        server.database("postgres").query("CREATE DATABASE bench TEMPLATE template0")
        yield server.database("bench")
    finally:
        stop(root)


async def migrate(place: Place) -> None:
    """Make the tables."""
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


def _rows(place: Place, number: int) -> list[dict[str, bytes]]:
    """What ours has written, as COPY takes it: for each batch the rows of every table."""
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        execution = f"execution_id = {1000 + number}"
        events = _copied(connection, f"SELECT {COLUMNS} FROM noetl.event_log WHERE {execution} AND stream_version > 2")
        keys = _copied(
            connection,
            "SELECT idempotency.* FROM noetl.idempotency JOIN noetl.event_log USING (position)"
            f" WHERE {execution} AND stream_version > 2",
        )
        (head,) = _copied(connection, f"SELECT * FROM noetl.stream_head WHERE stream_id = 'execution/{1000 + number}'")
    known = {int(row.split(b"\t")[3]): row for row in keys}
    pieces = []
    for first in range(0, len(events), _PER_BATCH):
        chunk = events[first : first + _PER_BATCH]
        positions = [int(row.split(b"\t", 1)[0]) for row in chunk]
        pieces.append(
            {
                "event_log": b"".join(chunk),
                "outbox": b"".join(b"%d\n" % position for position in positions),
                "idempotency": b"".join(known[position] for position in positions if position in known),
                "stream_head": head,
            }
        )
    return pieces


def _copied(connection: psycopg.Connection[Any], query: str) -> list[bytes]:
    with connection.cursor().copy(f"COPY ({query} ORDER BY 1) TO STDOUT".encode()) as copy:
        return [bytes(row) for row in copy]


def _copy_all(place: Place, pieces: list[dict[str, bytes]]) -> float:
    """What a program without a ledger would do: the same rows into tables like ours, a commit per batch."""
    columns = {"event_log": f"({COLUMNS})", "outbox": "(position)", "idempotency": "", "stream_head": ""}
    models = {
        "event_log": "event_log_rest",
        "outbox": "outbox",
        "idempotency": "idempotency",
        "stream_head": "stream_head",
    }
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        for table, model in models.items():
            connection.execute(f"DROP TABLE IF EXISTS noetl.raw_{table}".encode())
            connection.execute(f"CREATE TABLE noetl.raw_{table} (LIKE noetl.{model} INCLUDING ALL)".encode())
        settle()
        begun = time.perf_counter()
        for piece in pieces:
            connection.execute("BEGIN")
            for table, data in piece.items():
                if table == "stream_head":
                    connection.execute("DELETE FROM noetl.raw_stream_head")
                with connection.cursor().copy(f"COPY noetl.raw_{table} {columns[table]} FROM STDIN".encode()) as copy:
                    copy.write(data)
            connection.execute("COMMIT")
        return time.perf_counter() - begun
