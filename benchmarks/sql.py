"""Questions of `noetl sql` over two million events, against the same queries in plain Spark SQL on the lake's files."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import drafts
from benchmarks.harness import Measurement, alternate, workplace
from noetl.data.history import History
from noetl.data.history.history import CONF
from noetl.data.lake.layout import batch_of
from noetl.data.lake.log import Lake
from noetl.data.lake.writing import append
from noetl.data.session import SparkSessions, session_conf
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.ids import Snowflake
from noetl.kernel.stamp import Batch, prepare, stamp
from noetl.settings import Spark

__all__ = ["sql"]

_EVENTS = 2_000_000
_COMMIT = 50_000
_STEPS = 12
_NOW = 1_780_000_000_000_000
_QUERIES = (
    "SELECT event_type, count(*) AS n FROM events GROUP BY 1 ORDER BY 2 DESC, 1",
    "SELECT node_name, count(DISTINCT execution_id) AS executions, max(ingest_time) AS last FROM events GROUP BY 1",
    "SELECT count(*) AS n FROM events WHERE get_json_object(payload, '$.result.status') = 'ok'",
)  # fmt: skip


def sql() -> Measurement:
    """Three queries, one after the other, in one warm session. Ours opens the lake and looks at each query first."""
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        place = Path(folder).resolve()
        _fill(Lake(place / "lake"))
        sessions = SparkSessions.shared(place / "home")
        session = asyncio.run(sessions.get(session_conf(Spark(master="local[2]"))))
        for name, value in CONF.items():
            session.conf.set(name, value)
        found = alternate(
            "sql",
            "s",
            lambda _: _ours(session, place / "lake"),
            lambda _: _by_hand(session, place / "lake"),
            detail={"events": _EVENTS, "queries": len(_QUERIES)},
        )
        sessions.close()
        return found


def _ours(session: Any, lake: Path) -> float:
    begun = time.perf_counter()
    history = History(session, lake, tenant="*")
    answers = [history.sql(query).toArrow().num_rows for query in _QUERIES]
    seconds = time.perf_counter() - begun
    if not all(answers) or history.position != _EVENTS:
        raise SystemExit(f"the answers have {answers} rows, as of {history.position} events")
    return seconds


def _by_hand(session: Any, lake: Path) -> float:
    files = [str(path) for path in sorted((lake / "events").rglob("*.parquet"))]
    begun = time.perf_counter()
    session.read.parquet(*files).createOrReplaceTempView("events")
    for query in _QUERIES:
        session.sql(query).toArrow()
    return time.perf_counter() - begun


def _fill(lake: Lake) -> None:
    """The events of some executions, and the same again under other ids and positions."""
    ids = Snowflake(1)
    written: list[Envelope] = []
    while len(written) < _COMMIT:
        written += _execution(ids)
    rows = batch_of(Recorded(place, event) for place, event in enumerate(written[:_COMMIT], start=1))
    for number in range(_EVENTS // _COMMIT):
        append(lake, [_moved(rows, number)], now=_NOW)


def _execution(ids: Snowflake) -> list[Envelope]:
    execution_id = ids.next(_NOW // 1000)
    stream = drafts.execution(execution_id)
    told = drafts.start(execution_id)
    for number in range(_STEPS):
        told += drafts.step(execution_id, number, offset=len(told))
    batches = [Batch(stream=stream, drafts=told, expected_version=0)]
    return [stamped.event for stamped in stamp(batches, prepare(batches), {stream: None}, ids, _NOW).events]


def _moved(rows: pa.RecordBatch, number: int) -> pa.RecordBatch:
    by = {"position": number * _COMMIT, "execution_id": number << 40, "event_id": number << 40}
    columns = [
        pc.add(column, pa.scalar(by[name], pa.int64())) if name in by else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
