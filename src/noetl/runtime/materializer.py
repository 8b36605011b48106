"""The materializer: from the log on JetStream to the event table, which nobody else writes.

The mark of how far it has come is moved in the transaction that adds the events, so it can be killed anywhere, and
several may run at once: each adds whole appends in the order of the log, and what is there already stays as it is.
The events leave outbox rows as in any other ledger. So followers and the command queue are served by `noetl outbox`
as ever: a worker needs the database to claim a command, so a way around it would bring no command to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import msgspec

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Json, Recorded
from noetl.kernel.time import parse_time
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.wal import Mark, Materialized

__all__ = ["Counted", "Log", "Materializer", "Retention"]

_SECOND = 1_000_000
_ANSWER_SECONDS = 2.0
_PURGE_EVERY = 60.0
_log = logging.getLogger("noetl.materializer")


class Log(Protocol):
    """What a materializer needs of the ledger whose events it copies."""

    async def position(self) -> int:
        """The position of the last event."""
        ...

    async def pages(self, after: int, limit: int) -> tuple[Sequence[Recorded], Mark | None]:
        """Whole appends after a position, about so many events of them, and the mark at their end."""
        ...

    def wait(self, position: int, seconds: float) -> Coroutine[Any, Any, None]:
        """Return when the log is beyond a position, or after a while."""
        ...


class Retention(Protocol):
    """Drops what is in the table and old enough."""

    async def drop(self, upto: int) -> int:
        """Drop messages up to a number if they are old; the number up to which all were dropped."""
        ...


class Counted(msgspec.Struct, kw_only=True):
    """What a materializer has done since it began."""

    events: int = 0
    batches: int = 0
    present: int = 0
    """Events that another materializer had added first."""
    position: int = 0
    lag_seconds: float = 0.0
    last_error: str | None = None


class Materializer:
    """Copies whole appends, in order."""

    def __init__(
        self, log: Log, table: Materialized, clock: Clock, *, batch: int = 1000, retention: Retention | None = None
    ) -> None:
        self._log = log
        self._table = table
        self._clock = clock
        self._batch = batch
        self._retention = retention
        self._at = 0
        self._mark: Mark | None = None
        self.counted = Counted()

    async def step(self) -> int:
        """Copy about one batch; how many events it had. Raises Unavailable.

        Where to begin is what the table says: another one may have been faster, and what became of a batch whose
        answer was lost is known there.
        """
        began = time.perf_counter()
        standing = await self._table.standing()
        self._at, self._mark = standing.head.position, standing.mark
        items, mark = await self._log.pages(self._at, self._batch)
        if mark is None:
            return 0
        written = await self._table.materialize([item.event for item in items], mark)
        self._at, self._mark = mark.position, mark
        self.counted.events += written
        self.counted.present += len(items) - written
        self.counted.batches += 1
        self.counted.position = mark.position
        self.counted.lag_seconds = max(0.0, (self._clock.now() - parse_time(items[-1].event.ingest_time)) / _SECOND)
        metrics.count("noetl_materializer_events_total", amount=written)
        metrics.observe("noetl_materializer_batch_seconds", time.perf_counter() - began)
        return len(items)

    async def drain(self) -> int:
        """Copy until nothing is left; how many events that were."""
        copied = 0
        while took := await self.step():
            copied += took
        return copied

    async def run(self, stop: asyncio.Event, *, wait: float = 1.0, most_wait: float = 10.0) -> None:
        """Copy until told to stop; while something is away it is asked ever more rarely, and nothing is lost."""
        pause, purge_at = 0.0, 0.0
        while not stop.is_set():
            try:
                if not await self.step():
                    await _first_of(stop, self._log.wait(self._at, wait))
                if self._retention is not None and self._mark is not None and time.monotonic() >= purge_at:
                    await self._retention.drop(self._mark.seq)
                    purge_at = time.monotonic() + _PURGE_EVERY
                self.counted.last_error, pause = None, 0.0
            except Unavailable as error:
                if self.counted.last_error is None:
                    _log.warning("%s", error)
                self.counted.last_error = error.message
                pause = min(max(0.5, pause * 2), most_wait)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause)

    async def summary(self) -> Json:
        """How it is, for `/summary`; of what does not answer it says that."""
        counted: Json = msgspec.to_builtins(self.counted)
        end: int | None = None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                end = await self._log.position()
        except NoetlError as error:
            counted["last_error"] = error.message
        except TimeoutError:
            counted["last_error"] = f"the log does not answer within {_ANSWER_SECONDS:g} seconds"
        lag = None if end is None else max(0, end - self._at)
        return {"ok": counted["last_error"] is None, "log_position": end, "lag_events": lag, **counted}


async def _first_of(stop: asyncio.Event, waiting: Coroutine[Any, Any, None]) -> None:
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait()), asyncio.create_task(waiting)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
