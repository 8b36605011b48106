"""The event lake against a PySpark job that somebody would write by hand to copy the same rows to Parquet."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.harness import Measurement, alternate, workplace
from noetl.data.lake import Lake
from noetl.data.lake.syncing import sync
from noetl.data.session import SparkSessions, session_conf
from noetl.data.source import place_here, register
from noetl.data.source.log import LogSpec, url_of_home
from noetl.kernel.event import Draft
from noetl.kernel.stamp import Batch, Stream
from noetl.kernel.streams import execution_stream
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lake_sync"]

_EVENTS = 500_000
_AT_ONCE = 500
_PER_EXECUTION = 200
_PER_TASK = 50_000
_TIMES = ("event_time", "ingest_time")


def lake_sync() -> Measurement:
    """`noetl lake sync` of 500,000 events into an empty lake, in a warm session, as events a second.

    By hand the ledger's columns are read from the SQLite file with `sqlite3` in `mapInArrow`, 50,000 rows a task, and
    written as Parquet with zstd, partitioned by tenant and day. Ours also has the envelope of each event, buckets, an
    order and digests.
    """
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        place = Path(folder).resolve()
        asyncio.run(_fill(place / "home"))
        sessions = SparkSessions.shared(place / "home")
        session = asyncio.run(sessions.get(session_conf(Settings().spark)))
        register(session, place=place_here({}, place, place / "home"), push_filters=False)
        measured = alternate(
            "lake_sync",
            "events/s",
            lambda number: _ours(session, place, number),
            lambda number: _by_hand(session, place, number),
            detail={"events": _EVENTS, "ledger_bytes": (place / "home" / "ledger.db").stat().st_size},
        )
        sessions.close()
    return measured


async def _fill(home: Path) -> None:
    async with open_embedded(Home(home), Settings(), create=True) as embedded:
        for first in range(0, _EVENTS, _AT_ONCE):
            execution = 1_000_000 + first // _PER_EXECUTION
            drafts = [_draft(execution, first + n) for n in range(_AT_ONCE)]
            await embedded.ledger.append([Batch(stream=Stream("acme", execution_stream(execution)), drafts=drafts)])


def _draft(execution: int, number: int) -> Draft:
    return Draft(
        event_type="call.done", tenant_id="acme", organization_id="acme", project_id="bench", principal="bench",
        producer="noetl://tenant/acme/worker/bench", execution_id=execution, node_name="load", status="COMPLETED",
        payload={"result": {"rows": number, "path": f"orders/part-{number}.parquet", "note": "n" * 200}},
        meta={"worker_id": "bench", "duration_ms": number % 977},
    )  # fmt: skip


def _ours(session: SparkSession, place: Path, number: int) -> float:
    lake = Lake(place / f"lake-{number}")
    begun = time.perf_counter()
    done = sync(session, lake, LogSpec(url_of_home(place / "home")))
    seconds = time.perf_counter() - begun
    if done.events != _EVENTS or lake.head() != _EVENTS:
        raise SystemExit(f"the lake has {done.events} events")
    return _EVENTS / seconds


def _by_hand(session: SparkSession, place: Path, number: int) -> float:
    ledger, target = str(place / "home" / "ledger.db"), str(place / f"by-hand-{number}")
    begun = time.perf_counter()
    reading, columns = _reader(ledger)
    tasks = session.range(0, -(-_EVENTS // _PER_TASK), 1, -(-_EVENTS // _PER_TASK))
    rows = tasks.mapInArrow(reading, columns).selectExpr("*", "to_date(ingest_time) AS date")
    rows.write.partitionBy("tenant_id", "date").option("compression", "zstd").parquet(target)
    seconds = time.perf_counter() - begun
    if number == 0 and session.read.parquet(target).count() != _EVENTS:
        raise SystemExit("the job by hand has lost rows")
    return _EVENTS / seconds


def _reader(ledger: str) -> tuple[Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], str]:
    """What reads a part of the ledger, and the columns it gives."""
    with sqlite3.connect(ledger) as connection:
        known = connection.execute("SELECT name, type FROM pragma_table_info('event')").fetchall()
    connection.close()
    fields: list[tuple[str, Any]] = [
        (name, pa.timestamp("us", "UTC") if name in _TIMES else pa.int64() if kind == "INTEGER" else pa.string())
        for name, kind in known
    ]
    schema, size = pa.schema(fields), _PER_TASK

    def read(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
        for part in [int(number) for batch in parts for number in batch.column("id").to_pylist() if number is not None]:
            rows = log.execute(
                "SELECT * FROM event WHERE position > ? AND position <= ?", (part * size, (part + 1) * size)
            )
            while page := rows.fetchmany(4096):
                arrays = [
                    pa.array(column, pa.string()).cast(field.type)
                    if field.name in _TIMES
                    else pa.array(column, field.type)
                    for field, column in zip(schema, zip(*page, strict=True), strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        log.close()

    names = {pa.int64(): "bigint", pa.string(): "string"}
    return read, ", ".join(f"{field.name} {names.get(field.type, 'timestamp')}" for field in schema)
