"""Retention: archived executions leave the ledger when nothing speaks against it any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from noetl.errors import Conflict, InvalidInput, NoetlError
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.forgetting import Family, Forgotten
from noetl.ports.ledger import Ledger
from noetl.ports.projections import ProjectionStore
from noetl.replay.shares import projected_to
from noetl.runtime.home import Home
from noetl.runtime.judging import Judge, Verdict
from noetl.runtime.leader import Term
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.unpacking import bundles
from noetl.runtime.wiring import Embedded
from noetl.settings import Settings

__all__ = ["Retention", "check_can_forget", "open_retention"]

_log = logging.getLogger("noetl.retention")


def check_can_forget(settings: Settings) -> None:
    """Raise InvalidInput where nothing can leave the ledger."""
    if settings.ledger.mode == "wal":
        raise InvalidInput(
            "events cannot leave a ledger in WAL mode: servers would append to what is gone",
            hint="unset retention.every, or leave that mode: noetl materializer leave, when all servers have stopped",
        )


def open_retention(embedded: Embedded, settings: Settings, *, min_age: float | None = None) -> Retention:
    """What looks after an installation's ledger. Raises InvalidInput where nothing can leave it."""
    check_can_forget(settings)

    async def projected() -> int:
        return await projected_to(embedded.projections, PROJECTOR)

    async def lake() -> int | None:
        return None if embedded.home is None else await asyncio.to_thread(_lake_head, embedded.home, settings)

    judge = Judge(
        embedded.ledger,
        embedded.projections,
        embedded.replayer,
        embedded.archives,
        bundles(settings),
        embedded.clock,
        min_age=settings.retention.min_age if min_age is None else min_age,
        projected=projected,
        lake=lake,
    )
    return Retention(judge, embedded.ledger, embedded.projections)


def _lake_head(home: Home, settings: Settings) -> int | None:
    """How far the event lake has come; None if nobody has asked for one. One that was asked for may still be empty."""
    from noetl.runtime.lake import lake_of

    lake = lake_of(home, settings)
    return lake.head() if settings.lake.path is not None or lake.exists() else None


async def _no_check() -> None:
    """Whoever was asked by a person need not ask whether they may."""


class Retention:
    """Looks at all executions, and takes those out of the ledger that may go. Each family goes whole or stays whole."""

    def __init__(self, judge: Judge, ledger: Ledger, projections: ProjectionStore) -> None:
        self._judge = judge
        self._ledger = ledger
        self._projections = projections

    async def sweep(
        self, *, apply: bool, tenant_id: str | None = None, check: Callable[[], Awaitable[None]] = _no_check
    ) -> AsyncIterator[tuple[Verdict, list[Forgotten]]]:
        """What becomes of each root execution, and what was forgotten of it; without `apply` nothing is.

        `check` is asked before each family that goes. May be stopped anywhere, and may run beside another one.
        """
        active = await self._judge.active(tenant_id)
        async for root in self._judge.roots(tenant_id):
            verdict, family = await self._judge.judge(root, active)
            gone: list[Forgotten] = []
            if family is not None and apply:
                await check()
                verdict, gone = await self._forget(verdict, family)
            if apply:
                metrics.count("noetl_retention_roots_total", "gone" if gone else verdict.reason or "free")
            yield verdict, gone

    async def _forget(self, verdict: Verdict, family: Family) -> tuple[Verdict, list[Forgotten]]:
        try:
            gone = list(await self._ledger.forget(family))
        except Conflict as error:
            return msgspec.structs.replace(verdict, reason="untold", detail=error.message), []
        for one in gone:
            await self._projections.drop_snapshots(one.root, keep=0)
        metrics.count("noetl_retention_events_total", amount=sum(one.events for one in gone))
        metrics.count("noetl_retention_bytes_total", amount=sum(one.size for one in gone))
        return verdict, gone

    async def serve(self, term: Term, clock: Clock, seconds: float) -> None:
        """Sweep now and then again, until cancelled, or until others do. Raises LeaseLost."""
        while True:
            events = 0
            try:
                async for verdict, gone in self.sweep(apply=True, check=term.check):
                    events += sum(one.events for one in gone)
                    if verdict.reason == "damaged":
                        _log.error("%s stays: %s", verdict.root.stream_id, verdict.detail)
            except NoetlError as error:
                if isinstance(error, Conflict):
                    raise  # somebody else leads
                _log.warning("what may leave the ledger could not all be looked at: %s", error)
            if events:
                _log.info("%d archived events have left the ledger", events)
            await clock.sleep(seconds)
