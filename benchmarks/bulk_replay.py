"""Every execution of a lake folded in Spark, against the same fold of the same lake in one process."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import drafts
from benchmarks.harness import Measurement, workplace
from noetl.data.bulk import Bounds, fold_root, merge
from noetl.data.bulk.job import plan_lake
from noetl.data.bulk.replaying import replay_all
from noetl.data.bulk.shares import shares_of, sources_of
from noetl.data.lake.layout import batch_of
from noetl.data.lake.log import Lake
from noetl.data.lake.writing import append
from noetl.data.session import SparkSessions, session_conf
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.ids import Snowflake
from noetl.kernel.stamp import Batch, prepare, stamp
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.settings import Spark

__all__ = ["bulk_replay"]

_SIZES = (100_000, 1_000_000, 2_000_000)
_MEASURED = 1_000_000
_ROUNDS = 5
_STEPS = 12
_COMMIT = 50_000
_NOW = 1_780_000_000_000_000


def bulk_replay() -> Measurement:
    """A million events of executions with 12 steps each, on two cores and warm: bundles of all, and no states, on both
    sides. `cost_ratio` is what an event costs among two million, to what it costs among a hundred thousand: at most 1
    is flat.
    """
    with tempfile.TemporaryDirectory(dir=workplace()) as folder:
        return asyncio.run(_measure(Path(folder).resolve()))


async def _measure(place: Path) -> Measurement:
    lake = Lake(place / "lake")
    _fill(lake, _SIZES[-1])
    sessions = SparkSessions.shared(place / "home")
    session = await sessions.get(session_conf(Spark(master="local[2]")))
    ours: dict[int, list[float]] = {size: [] for size in _SIZES}
    alone: list[float] = []
    for number in range(_ROUNDS + 1):
        for size in _SIZES:
            ours[size].append(
                await asyncio.to_thread(_ours, session, lake, size, place / f"out-{number}-{size}") / size
            )
        alone.append(_alone(lake, _MEASURED) / _MEASURED)
    sessions.close()
    cost = {size: statistics.median(taken[1:]) for size, taken in ours.items()}
    single = statistics.median(alone[1:])
    mine, theirs = 1 / cost[_MEASURED], 1 / single
    return Measurement(
        bench="bulk_replay", ours=mine, reference=theirs, ratio=mine / theirs, unit="events/s",
        detail={"events": _MEASURED, "microseconds_per_event": {size: each * 1e6 for size, each in cost.items()},
                "cost_ratio": cost[_SIZES[-1]] / cost[_SIZES[0]]},
    )  # fmt: skip


def _fill(lake: Lake, events: int) -> None:
    """Executions of a hundred events each, one after the other. Making them takes longer than folding them."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for batch in pool.imap(_some, range(events // _COMMIT)):
            append(lake, [batch], now=_NOW)


def _some(number: int) -> pa.RecordBatch:
    """The events of one commit."""
    now = _NOW + number * 1_000_000
    ids = Snowflake(1)
    written: list[Envelope] = []
    while len(written) < _COMMIT:
        written += _execution(ids, now)
    return batch_of(Recorded(number * _COMMIT + place, event) for place, event in enumerate(written, start=1))


def _execution(ids: Snowflake, now: int) -> list[Envelope]:
    execution_id = ids.next(now // 1000)
    stream = drafts.execution(execution_id)
    told = drafts.start(execution_id)
    for number in range(_STEPS):
        told += drafts.step(execution_id, number, offset=len(told))
    batches = [Batch(stream=stream, drafts=[*told, *drafts.end(execution_id)], expected_version=0)]
    return [stamped.event for stamped in stamp(batches, prepare(batches), {stream: None}, ids, now).events]


def _ours(session: Any, lake: Lake, position: int, out: Path) -> float:
    begun = time.perf_counter()
    found = replay_all(out, "lake", Bounds(position=position), plan=plan_lake(session, lake.path), states=False)
    if found.events != position or found.failed:
        raise SystemExit(f"folded {found.events} of {position} events, {found.failed} roots failed")
    return time.perf_counter() - begun


def _alone(lake: Lake, position: int) -> float:
    begun = time.perf_counter()
    bounds, registry, events = Bounds(position=position), default_registry(), 0
    for share in shares_of(lake, bounds):
        for root, chunks in merge(sources_of(lake, share, bounds)):
            found = fold_root(Stream(share.tenant, root), chunks, registry, bounds)
            found.checksum()
            events += found.events_folded
    if events != position:
        raise SystemExit(f"folded {events} of {position} events")
    return time.perf_counter() - begun
