"""Stages, against the same work in PySpark by hand: `mapInArrow` that writes the same files in the same session.

Ours is the whole execution of a playbook with one step, as a user runs it. It is measured where `engine: auto` puts the
stage and on Spark; what is printed is the slower of the two. By hand there are no leases and no events, but the same
body, the same columns, the same codec, and as many files that are as durable. What they take when nothing is synced to
the disk is in the detail, as `unsynced`.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from benchmarks.harness import Measurement, workplace
from benchmarks.processes import cpu_seconds, forget_peak, peak_bytes
from noetl.data.session import SparkSessions, session_conf
from noetl.runtime.calls import Finished
from noetl.runtime.driver import Origin, Request
from noetl.runtime.embedded.runner import Runner, open_runner
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["empty_stage", "fan_out", "small_frames", "stage_memory"]

Engine = Literal["auto", "spark"]

_ENGINES: tuple[Engine, ...] = ("auto", "spark")
_ROUNDS = 5
_WARM_UP = 2
_MILLION = 1_000_000
_ROWS = 5 * _MILLION
_FRAME_ROWS = 50_000
_SMALL_FRAMES = 2_000
_SMALL_ROWS = 10
_LINEAGE = ("_stage_id", "_frame_id", "_parent_frame_id", "_command_id", "_slot", "_frame_index", "_row_index")
_DOCUMENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: bench, path: bench}
workflow:
  - step: score
    loop:
      in: {path: "%s"}
      iterator: row
      spec:
        mode: fanout
        engine: %s
        frame: {process: frame, max_rows: %d}
    tool:
      kind: python
      code: |
        import pyarrow.compute as pc
        result = frame.table.append_column("score", pc.multiply(frame.table["amount"], 0.1))
"""


# --- The benchmarks -----------------------------------------------------------------------------------------


def fan_out() -> Measurement:
    """Five million rows through a frame-mode body: seconds."""
    return asyncio.run(_fan_out("fan_out", _ROWS, _FRAME_ROWS))


def small_frames() -> Measurement:
    """Two thousand frames of ten rows: seconds."""
    return asyncio.run(_fan_out("small_frames", _SMALL_FRAMES * _SMALL_ROWS, _SMALL_ROWS))


def empty_stage() -> Measurement:
    """A stage over a file without rows: seconds. The reference is a python step that does nothing."""
    return asyncio.run(_empty_stage())


def stage_memory() -> Measurement:
    """What the process of the driver grows to with five million rows on Spark, against one million: bytes."""
    return asyncio.run(_stage_memory())


async def _fan_out(bench: str, rows: int, frame_rows: int) -> Measurement:
    async with _open() as place:
        await asyncio.to_thread(place.make, rows)
        sides: dict[str, Callable[[], Awaitable[int]]] = {
            "auto": lambda: place.score("auto", rows, frame_rows),
            "spark": lambda: place.score("spark", rows, frame_rows),
            "by_hand": lambda: asyncio.to_thread(place.by_hand, rows, frame_rows),
            "unsynced": lambda: asyncio.to_thread(place.by_hand, rows, frame_rows, is_synced=False),
        }
        seen = await _alternate(sides)
    hand = seen["by_hand"]
    ours = max((seen[engine] for engine in _ENGINES), key=lambda side: side.seconds)
    return Measurement(
        bench=bench, ours=ours.seconds, reference=hand.seconds, ratio=ours.seconds / hand.seconds, unit="s",
        detail={
            "rows": rows,
            "engines": {
                engine: {
                    "seconds": seen[engine].seconds,
                    "cpu": seen[engine].cpu,
                    "ratio": seen[engine].seconds / hand.seconds,
                    "cpu_ratio": seen[engine].cpu / hand.cpu,
                }
                for engine in _ENGINES
            },
            "sides": {name: msgspec.structs.asdict(side) for name, side in seen.items()},
        },
    )  # fmt: skip


async def _empty_stage() -> Measurement:
    async with _open() as place:
        await asyncio.to_thread(place.make, 0)
        nothing = _DOCUMENT.partition("  - step")[0] + '  - step: score\n    tool: {kind: python, code: "result = 1"}\n'
        sides: dict[str, Callable[[], Awaitable[int]]] = {
            "auto": lambda: place.score("auto", 0, _FRAME_ROWS),
            "spark": lambda: place.score("spark", 0, _FRAME_ROWS),
            "nothing": lambda: place.run_nothing(nothing),
        }
        seen = await _alternate(sides)
    ours, reference = max(seen[engine].seconds for engine in _ENGINES), seen["nothing"].seconds
    return Measurement(
        bench="empty_stage", ours=ours, reference=reference, ratio=ours / reference, unit="s",
        detail={"engines": {engine: msgspec.structs.asdict(seen[engine]) for engine in _ENGINES}},
    )  # fmt: skip


async def _stage_memory() -> Measurement:
    """Each size in a process of its own would tell of its start; so the smaller one comes first, after a warm-up."""
    peaks = {}
    async with _open() as place:
        for number, rows in enumerate((_MILLION, _MILLION, _ROWS)):
            await asyncio.to_thread(place.make, rows)
            forget_peak()
            await place.score("spark", rows, _FRAME_ROWS)
            if number:
                peaks[rows] = peak_bytes()
    ours, reference = peaks[_ROWS], peaks[_MILLION]
    return Measurement(bench="stage_memory", ours=ours, reference=reference, ratio=ours / reference, unit="bytes",
                       detail={"rows": _ROWS, "reference_rows": _MILLION})  # fmt: skip


class _Side(msgspec.Struct, frozen=True):
    """What one side takes: medians, and all that they are the medians of."""

    seconds: float
    cpu: float
    files: int
    every: list[float]


async def _alternate(sides: dict[str, Callable[[], Awaitable[int]]]) -> dict[str, _Side]:
    """Run the sides turn by turn. Each says how many files it has written."""
    walls: dict[str, list[float]] = {name: [] for name in sides}
    cpus: dict[str, list[float]] = {name: [] for name in sides}
    files = {}
    for number in range(_WARM_UP + _ROUNDS):
        for name, run in sides.items():
            begun, used = time.perf_counter(), cpu_seconds()
            files[name] = await run()
            if number >= _WARM_UP:
                walls[name].append(time.perf_counter() - begun)
                cpus[name].append(cpu_seconds() - used)
    return {
        name: _Side(statistics.median(walls[name]), statistics.median(cpus[name]), files[name], walls[name])
        for name in sides
    }


# --- Where they run -----------------------------------------------------------------------------------------


@asynccontextmanager
async def _open() -> AsyncIterator[_Place]:
    """A home with a runner, and a session that is warm."""
    with tempfile.TemporaryDirectory(dir=workplace().resolve()) as folder:
        place, settings = Path(folder), Settings()
        async with (
            open_embedded(Home(place / "home"), settings, create=True) as embedded,
            open_runner(embedded, Origin(), directory=place, scratch=place / "scratch", slots=4) as runner,
        ):
            sessions = SparkSessions.shared(place / "home")
            try:
                session = await sessions.get(session_conf(settings.spark))
                yield _Place(place, runner, session)
                await sessions.release(session)
            finally:
                sessions.close()


class _Place:
    """A folder with an input, and the two ways to run over it."""

    def __init__(self, folder: Path, runner: Runner, session: Any) -> None:
        self._folder = folder
        self._runner = runner
        self._session = session
        self._inputs = 0
        self._written = 0

    def make(self, rows: int) -> None:
        """Write the input: eight files of Parquet."""
        self._inputs += 1
        columns = ("id", "id % 1000 AS customer", "id * 31 % 10007 / 100 AS amount", "concat('city ', id % 97) AS city")
        self._session.range(0, rows, 1, 8).selectExpr(*columns).write.parquet(self._input)

    @property
    def _input(self) -> str:
        return str(self._folder / f"orders{self._inputs}")

    async def score(self, engine: Engine, rows: int, frame_rows: int) -> int:
        """Run the playbook."""
        finished = await self._run(_DOCUMENT % (self._input, engine, frame_rows))
        stats = finished.result
        if stats["rows"] != rows:
            raise SystemExit(f"{rows} rows were wanted: {stats}")
        return int(stats["frames"])

    async def run_nothing(self, document: str) -> int:
        """Run another playbook, that writes no files."""
        await self._run(document)
        return 0

    async def _run(self, document: str) -> Finished:
        execution_id = await self._runner.start(Request(document=document))
        finished = await self._runner.wait(execution_id)
        if finished.status != "COMPLETED":
            raise SystemExit(f"the run ended {finished.status}: {finished.error}")
        return finished

    def by_hand(self, rows: int, frame_rows: int, *, is_synced: bool = True) -> int:
        """Do the same in PySpark; with files that are on the disk when it has ended, or that may be lost."""
        self._written += 1
        folder = self._folder / f"by_hand{self._written}"
        folder.mkdir()
        self._session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", frame_rows)
        orders = self._session.read.parquet(self._input)
        written = orders.mapInArrow(_scoring(str(folder), is_synced), "path string, rows long").collect()
        if sum(row.rows for row in written) != rows:
            raise SystemExit(f"{rows} rows were wanted: {written}")
        return len(written)


def _scoring(folder: str, is_synced: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What PySpark is given. It is sent by value, and imports what it needs where it runs."""
    lineage = _LINEAGE

    def score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import uuid

        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import feather

        def sync(path: str) -> None:
            opened = os.open(path, os.O_RDONLY)
            os.fsync(opened)
            os.close(opened)

        for number, batch in enumerate(batches):
            table = pa.Table.from_batches([batch])
            result = table.append_column("score", pc.multiply(table["amount"], 0.1))
            for name in lineage[:-1]:
                result = result.append_column(name, pa.repeat(pa.scalar(number, pa.int64()), result.num_rows))
            result = result.append_column(lineage[-1], pa.array(np.arange(result.num_rows)))
            path = f"{folder}/{uuid.uuid4().hex}.arrow"
            feather.write_feather(result, path, compression="zstd", chunksize=result.num_rows)
            if is_synced:
                sync(path)
                sync(folder)
            yield pa.record_batch({"path": [path], "rows": [result.num_rows]})

    return score
