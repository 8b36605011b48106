"""The keeper of a stage: it has the slots run until every frame has ended, and says what that came to.

Whoever holds the stage's command is its keeper. A new one goes on from the log: what was committed stays, what was
running is run again. That two believe to be the keeper does no harm: the stream of the stage takes only one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from noetl.data.frame.protocol import FramePlane, Pinned, StageFault, StagePlan
from noetl.data.frame.state import Turn
from noetl.data.frame.table import FrameTable
from noetl.engine.outcome import failure
from noetl.errors import LeaseLost, NoetlError, StreamSealed, VersionConflict
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.seal import Seal
from noetl.ports.clock import Clock
from noetl.runtime.stages.desk import Answer, Desk
from noetl.runtime.stages.placement import Placement
from noetl.runtime.stages.plane import KeptPlane, StageServices
from noetl.runtime.stages.progress import Pace, StageProgress

__all__ = ["Ending", "Finish", "Host", "Look", "Pin", "StageKeeper"]

Pin = Callable[[StagePlan, PayloadRef | None], Awaitable[Pinned]]
"""Makes sure that the input of a stage stays what it is; given what was pinned before, it is that again."""

Look = Callable[[], Awaitable[Literal["on", "halt", "stop"]]]
"""Whether a stage is to go on: it may be that no new rows are wanted, or nothing at all."""

Finish = Callable[[FrameTable, bool], Awaitable[Json]]
"""Has what frames have prepared take effect, or with False leaves nothing of it behind. Raises StageFault."""

_log = logging.getLogger("noetl.stages")
_TICK = 1.0
_MOST_IDLE = 3
"""Rounds in a row in which no slot takes a frame, though there are some."""
_LOOK_SECONDS = 2.0
"""How long a cancellation by another process may stay unseen."""


class Host(Protocol):
    """Where slots run: in this process, in executors, anywhere."""

    def place(self, plan: StagePlan, rows: int | None, frames: int = 0) -> Placement:
        """Where they are going to, and why. It is written down, and then holds."""
        ...

    async def run(self, plan: StagePlan, plane: FramePlane, slots: Sequence[int]) -> None:
        """Run these slots until each has drained and said so."""
        ...


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage has come to. Nothing is written to its stream any more."""

    table: FrameTable
    seal: Seal
    error: Json | None = None
    """Why it could not go on; what failed rows mean for it is another question."""
    is_cancelled: bool = False
    finished: Json | None = None
    """What is said by what frames have prepared together, once that has taken effect."""


class StageKeeper:
    """Keeps one stage, from its first frame or from wherever another keeper has left it."""

    def __init__(
        self,
        desk: Desk,
        services: StageServices,
        steady: Clock,
        *,
        pin: Pin | None = None,
        look: Look,
        finish: Finish | None = None,
    ) -> None:
        """`look` is asked from time to time: an execution may be cancelled, or fail elsewhere, while this one runs."""
        self.plan = desk.plan
        self.plane = KeptPlane(desk, services)
        self._desk = desk
        self._steady = steady
        self._pin = pin
        self._look = look
        self._finish = finish
        self.placement: Placement | None = None
        """Where its slots run; None before that is decided."""
        self._pace = Pace()
        self._stopped = asyncio.Event()
        self._stopped_by: Json | None = None

    @property
    def table(self) -> FrameTable:
        """The frames, as they stand this moment."""
        return self._desk.table

    def progress(self) -> StageProgress:
        """How far it has come."""
        host = None if self.placement is None else self.placement.host
        said = self._pace.progress(self.plan, self.table, self._steady.now())
        return msgspec.structs.replace(said, host=host, ui=self.plane.place.get("ui"))

    def stop(self, error: Json | None = None) -> None:
        """Give out and accept nothing more: the execution was cancelled, or the stage fails with this error."""
        if not self._stopped.is_set():
            self._desk.table.is_cancelled = True
            self._stopped_by = error
            self._stopped.set()

    async def run(self, host: Host) -> Ending:
        """Keep the stage to its end. Raises LeaseLost if somebody else keeps it by now."""
        try:
            error = await self._open(host)
        except (VersionConflict, StreamSealed):
            raise LeaseLost(f"stage {self.plan.stage_id} is kept by somebody else", hint="drop the work") from None
        work = [asyncio.create_task(self._desk.serve()), asyncio.create_task(self._watch())]
        try:
            error = error or await self._rounds(host)
            await self._desk.ask(_cancel)
            finished, error = await self._finished(error)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            self._desk.close()
        seal = await self._desk.seal()
        is_cancelled = self._stopped.is_set() and self._stopped_by is None
        return Ending(table=self.table, seal=seal, error=self._stopped_by or error, is_cancelled=is_cancelled,
                      finished=finished)  # fmt: skip

    async def _open(self, host: Host) -> Json | None:
        """Take the stage over; why there is nothing to run, if what it runs over cannot be had."""
        recorded = await self._desk.load()
        pinned, error = None, None
        if self._pin is not None and self.plan.kind != "loop" and not self._stopped.is_set():
            try:
                pinned = await self._pin(self.plan, recorded)
            except StageFault as problem:
                error = problem.error
            except NoetlError as problem:
                error = failure("STAGE_INPUT", f"the input of step '{self.plan.step}' cannot be read: {problem}")
        if error is None and not self._stopped.is_set():
            rows = None if pinned is None else sum(piece.rows for piece in pinned.slices)
            self.placement = host.place(self.plan, rows, 0 if pinned is None else len(pinned.slices))
        await self._desk.open(pinned, {} if self.placement is None else msgspec.to_builtins(self.placement))
        return error

    async def _rounds(self, host: Host) -> Json | None:
        """Run slots until nothing is left; the error that keeps them from it.

        One round is enough unless slots were lost with frames in their hands after the others had drained.
        """
        slots: Sequence[int] = range(self.plan.slots)
        if self.plan.kind != "loop" and self.table.is_over:
            return None
        idle = 0
        while not self._stopped.is_set():
            before = self.table.dispatches
            error = await self._round(host, slots)
            if error is not None or self._stopped.is_set():
                return error
            await self._desk.ask(_leave)
            table = self.table
            error = next((said.error for said in table.reports.values() if said.error is not None), None)
            if error is not None or table.is_over:
                return error
            idle = idle + 1 if table.dispatches == before else 0
            if idle == _MOST_IDLE:
                return failure("SLOTS_IDLE", f"{table.pending} frames are left, and no slot takes them")
            slots = range(min(self.plan.slots, max(1, table.pending)))
        return None

    async def _round(self, host: Host, slots: Sequence[int]) -> Json | None:
        running = asyncio.create_task(host.run(self.plan, self.plane, slots))
        stopped = asyncio.create_task(self._stopped.wait())
        waits: set[asyncio.Future[Any]] = {running, stopped, self._desk.lost}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not running.done():
                running.cancel()
            await asyncio.gather(running, stopped, return_exceptions=True)
        if self._desk.lost.done():
            self._desk.lost.result()
        problem = None if running.cancelled() else running.exception()
        if problem is None:
            return None
        code = getattr(problem, "code", "STAGE_FAULT")
        return failure(code, f"the slots of step '{self.plan.step}' broke: {_told(problem)}")

    async def _finished(self, error: Json | None) -> tuple[Json | None, Json | None]:
        """Have it take effect if all rows are there, else undo it; what that says, and the error that there is."""
        if self._finish is None:
            return None, error
        if error is None and not self._stopped.is_set() and not self.table.tally.is_any_failed:
            if self.table.tally.stats.success != self.table.rows_total:
                error = failure("HALTED", "the execution failed elsewhere before all rows were there; none was moved")
            else:
                return await self._effect(self._finish)
        await self._undo(self._finish)
        return None, error

    async def _effect(self, finish: Finish) -> tuple[Json | None, Json | None]:
        taking = asyncio.ensure_future(finish(self.table, True))
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({taking, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not taking.done():
                taking.cancel()
            await asyncio.gather(taking, stopped, return_exceptions=True)
        try:
            return taking.result(), None
        except asyncio.CancelledError:
            error = None
        except StageFault as problem:
            error = problem.error
        await self._undo(finish)
        return None, error

    async def _undo(self, finish: Finish) -> None:
        try:
            await finish(self.table, False)
        except NoetlError as problem:
            _log.warning("step '%s' may have left something behind: %s", self.plan.step, problem)

    async def _watch(self) -> None:
        """Give up frames of whose holders nothing is heard, and find out whether the stage is to go on."""
        tick = min(_TICK, self.plan.policy.lease_seconds / 4)
        looked = 0.0
        while True:
            self._pace.note(self._steady.now(), self.table.tally.stats.total)
            await self._steady.sleep(tick)
            looked += tick
            with contextlib.suppress(NoetlError):  # a ledger that cannot be written to, or read: slots hear of that
                if self.table.lapsed(self._steady.now()):
                    await self._desk.ask(_expire)
                if looked >= _LOOK_SECONDS:
                    looked = 0.0
                    await self._heed(await self._look())

    async def _heed(self, seen: Literal["on", "halt", "stop"]) -> None:
        if seen == "stop":
            self.stop()
        elif seen == "halt" and not self.table.is_halted:
            await self._desk.ask(_halt)


def _told(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, NoetlError) else f"{type(problem).__name__}: {problem}"


def _expire(table: FrameTable, turn: Turn) -> Answer[None]:
    table.expire(turn)
    return _nothing


def _leave(table: FrameTable, turn: Turn) -> Answer[None]:
    table.leave(turn)
    return _nothing


def _halt(table: FrameTable, turn: Turn) -> Answer[None]:
    table.is_halted = turn.is_news = True
    return _nothing


def _cancel(table: FrameTable, turn: Turn) -> Answer[None]:
    table.cancel(turn)
    return _nothing


def _nothing() -> None:
    return None
