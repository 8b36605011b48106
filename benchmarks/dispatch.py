"""Steps through the queue and workers of other processes: how soon one is done, and how many more a second one does."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import yaml

from benchmarks.append_postgres import bench_database
from benchmarks.harness import Measurement, alternate, workplace
from tests.distributed.stack import Stack, stack
from tests.services.nats import NatsServer
from tests.services.postgres_server import Database as Place

__all__ = ["dispatch", "workers"]

_RATE = 20.0
_SECONDS = 4.0
_COMMITS = 200
_ROWS = 8
_BUSY = 40
_COLUMNS = 20
# From the commit that issues a command to the one that ends it, by the database's own clock.
_STEPS = """
    SELECT execution_id,
           extract(epoch FROM max(ingest_time::TIMESTAMPTZ) FILTER (WHERE event_type = 'command.completed')
                            - max(ingest_time::TIMESTAMPTZ) FILTER (WHERE event_type = 'command.issued')),
           extract(epoch FROM max(ingest_time::TIMESTAMPTZ) FILTER (WHERE event_type = 'playbook.completed'))
    FROM noetl.event_log
    WHERE execution_id = ANY(%s)
    GROUP BY execution_id
"""


def dispatch() -> Measurement:
    """A step with one python task, at 20 executions a second, against one commit of eight rows by hand."""
    steps: list[float] = []
    whole: list[float] = []
    with _installation() as (running, place):
        running.worker("w", "--concurrency", "8")
        running.server.register(_document("trivial", "result = 1"))

        def ours(number: int) -> float:
            found = asyncio.run(_at_rate(running, place))
            if number:
                steps.extend(step for step, _ in found)
                whole.extend(seconds for _, seconds in found)
            return statistics.median(step for step, _ in found)

        measured = alternate("dispatch", "s", ours, lambda _: _commit_seconds(place))
    p50 = statistics.median(steps)
    measured.detail |= {
        "executions": len(steps), "rate": _RATE, "p50_ms": p50 * 1e3, "p99_ms": _p99(steps) * 1e3,
        "p99_to_p50": _p99(steps) / p50, "request_to_end_p50_ms": statistics.median(whole) * 1e3,
        "request_to_end_p99_ms": _p99(whole) * 1e3,
    }  # fmt: skip
    return measured


def workers() -> Measurement:
    """Steps of 100 ms of CPU, one at a time on each worker: two processes against one."""
    with _installation() as (running, place):
        running.server.register(_document("busy", "import time\nend = time.process_time() + 0.1\n"
                                                  "while time.process_time() < end: pass\nresult = 1"))  # fmt: skip

        def with_workers(count: int) -> float:
            for n in range(count):
                running.worker(f"w{count}{n}", "--concurrency", "1")
            found = asyncio.run(_all_at_once(running, place))
            running.kill_workers()
            return found

        return alternate("workers", "steps/s", lambda _: with_workers(2), lambda _: with_workers(1))


@contextlib.contextmanager
def _installation() -> Iterator[tuple[Stack, Place]]:
    with tempfile.TemporaryDirectory(dir=workplace()) as folder, bench_database() as place:
        root = Path(folder).resolve()
        (root / "nats").mkdir()
        nats = NatsServer(root / "nats").start()
        try:
            with stack(root, place.dsn, nats.url, lease="30s") as running:
                yield running, place
        finally:
            nats.kill()


def _document(name: str, code: str) -> str:
    about = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"bench/{name}"}}
    return yaml.safe_dump({**about, "workflow": [{"step": "start", "tool": {"kind": "python", "code": code}}]})


async def _at_rate(running: Stack, place: Place) -> list[tuple[float, float]]:
    """Of each execution the seconds of its step, and those from the request to its end."""
    sent: dict[int, float] = {}

    async def one(number: int) -> None:
        await asyncio.sleep(number / _RATE)
        at = time.time()
        sent[int(await asyncio.to_thread(running.server.start, "bench/trivial"))] = at

    await asyncio.gather(*(one(number) for number in range(int(_RATE * _SECONDS))))
    ended = await _ended(place, list(sent))
    return [(step, at - sent[execution_id]) for execution_id, step, at in ended]


async def _all_at_once(running: Stack, place: Place) -> float:
    """Steps a second, once they all wait."""
    ids = [int(running.server.start("bench/busy")) for _ in range(_BUSY)]
    begun = time.time()
    ended = await _ended(place, ids)
    return len(ids) / (max(at for _, _, at in ended) - begun)


async def _ended(place: Place, ids: list[int]) -> list[tuple[int, float, float]]:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        while True:
            rows: list[Any] = connection.execute(_STEPS, (ids,)).fetchall()
            if len(rows) == len(ids) and all(end is not None for _, _, end in rows):
                return [(execution_id, float(step), float(end)) for execution_id, step, end in rows]
            await asyncio.sleep(0.2)


def _commit_seconds(place: Place) -> float:
    """One commit of eight rows, by hand."""
    columns = ", ".join(f"c{n} TEXT" for n in range(_COLUMNS))
    row = tuple("x" * 40 for _ in range(_COLUMNS))
    taken = []
    with psycopg.connect(place.dsn) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS raw_rows ({columns})".encode())
        connection.commit()
        insert = f"INSERT INTO raw_rows VALUES ({', '.join(['%s'] * _COLUMNS)})".encode()
        for _ in range(_COMMITS):
            begun = time.perf_counter()
            with connection.cursor() as cursor:
                cursor.executemany(insert, [row] * _ROWS)
            connection.commit()
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
