"""Appending, against raw `sqlite3` that writes the very same rows with the same durability."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import drafts
from benchmarks.harness import Measurement, alternate, settle, workplace
from noetl.adapters.sqlite import Database, SqliteLedger
from noetl.kernel.event import Draft
from noetl.kernel.stamp import Batch
from noetl.runtime.clock import SystemClock

__all__ = ["append", "append_step", "batch_of", "rows_of", "write_raw"]

_TABLES = ("event", "outbox", "idempotency", "stream_head", "ledger_head")
_KEY = b"k" * 32


def append() -> Measurement:
    """Batches of 500 events; the reference runs `executemany` over the same rows, one commit per batch."""
    return _compare("append", batches=20, per_batch=500, unit="events/s", per="events")


def append_step() -> Measurement:
    """One step's worth: eight events, one durable commit."""
    return _compare("append_step", batches=150, per_batch=8, unit="commits/s", per="commits", rounds=21)


def _compare(bench: str, *, batches: int, per_batch: int, unit: str, per: str, rounds: int = 9) -> Measurement:
    count = batches * (per_batch if per == "events" else 1)
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        place = Path(folder)
        rows: dict[int, dict[str, list[tuple[Any, ...]]]] = {}

        def ours(number: int) -> float:
            path = place / f"ours{number}.db"
            seconds = asyncio.run(_append_all(path, number, batches, per_batch))
            rows[number] = rows_of(path)
            return count / seconds

        def reference(number: int) -> float:
            return count / write_raw(place / f"raw{number}.db", place / f"ours{number}.db", rows.pop(number), per_batch)

        detail = {"batches": batches, "events_per_batch": per_batch}
        return alternate(bench, unit, ours, reference, rounds=rounds, detail=detail)


async def _append_all(path: Path, number: int, batches: int, per_batch: int) -> float:
    database = Database(path)
    ledger = await SqliteLedger(database, SystemClock(), mac_key=_KEY).open()
    stream = drafts.execution(1000 + number)
    await ledger.append([Batch(stream=stream, drafts=drafts.start(1000 + number), expected_version=0)])
    prepared = [batch_of(1000 + number, index, per_batch) for index in range(batches)]
    version = 2
    settle()
    begun = time.perf_counter()
    for batch in prepared:
        await ledger.append([Batch(stream=stream, drafts=batch, expected_version=version)])
        version += len(batch)
    seconds = time.perf_counter() - begun
    database.close()
    return seconds


def batch_of(execution_id: int, index: int, size: int) -> list[Draft]:
    """Events of some steps, so many of them."""
    steps = range(index * size, index * size + size, 8)
    events = [
        draft for offset, number in enumerate(steps) for draft in drafts.step(execution_id, number, offset=offset * 8)
    ]
    return events[:size]


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that appends have left in a ledger, by table."""
    with sqlite3.connect(path) as connection:
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in _TABLES}


def write_raw(path: Path, model: Path, rows: dict[str, list[tuple[Any, ...]]], per_batch: int) -> float:
    """What a program without a ledger would do: the same tables, the same rows, a commit per batch."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    with sqlite3.connect(model) as source:
        for (sql,) in source.execute(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        ):
            connection.execute(sql)
    keys = {row[3]: row for row in rows["idempotency"]}
    head, ledger = rows["stream_head"][0], rows["ledger_head"][0]
    events = rows["event"][2:]
    settle()
    begun = time.perf_counter()
    for first in range(0, len(events), per_batch):
        chunk = events[first : first + per_batch]
        connection.execute("BEGIN IMMEDIATE")
        _insert(connection, "event", chunk)
        _insert(connection, "outbox", rows["outbox"][2 + first : 2 + first + per_batch])
        _insert(connection, "idempotency", [keys[row[0]] for row in chunk if row[0] in keys])
        _insert(connection, "stream_head", [head], "INSERT OR REPLACE")
        _insert(connection, "ledger_head", [ledger], "INSERT OR REPLACE")
        connection.execute("COMMIT")
    seconds = time.perf_counter() - begun
    connection.close()
    return seconds


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]], verb: str = "INSERT") -> None:
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"{verb} INTO {table} VALUES ({marks})", rows)
