"""A slot: it takes frames, has their bodies run, and commits what came of them, until there are none.

It knows the protocol and nothing else: what a body does, and where rows are kept, is its `work`. While one body runs
the frames before it are being stored and committed, a few at most. A frame of which the keeper says that it is lost is
stopped and dropped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from noetl.data.frame.protocol import Claimed, Frame, FrameOutcome, FramePlane, Opening, SlotReport, StagePlan
from noetl.data.frame.running import Ran
from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Json
from noetl.ports.clock import Clock

__all__ = ["ClaimFailed", "Slot", "SlotWork"]

_AT_ONCE = 16
"""Frames of a fan-out that are taken in one call; towards the end the keeper gives fewer."""
_MOST_COMMITS = 4
_TRIES = 5

T = TypeVar("T")
_log = logging.getLogger("noetl.frames")


class ClaimFailed(NoetlError):
    """The statement that claims rows has failed for good; `error` is what it said."""

    def __init__(self, error: Json) -> None:
        super().__init__(str(error.get("message", "the claim failed")))
        self.error = error


class SlotWork(Protocol):
    """What is done with frames."""

    async def claim(self, slot: int) -> Opening | None:
        """Rows of a cursor, claimed and stored; None if there were none. Raises ClaimFailed."""
        ...

    async def run(self, frame: Frame) -> Ran:
        """Run the body of a frame. Whatever goes wrong is in its outcome."""
        ...

    async def keep(self, frame: Frame, ran: Ran) -> FrameOutcome:
        """Make the output of a frame durable; the outcome that may then be committed."""
        ...


class Slot:
    """One slot of a stage, from its first claim until it has drained."""

    def __init__(
        self,
        plan: StagePlan,
        number: int,
        plane: FramePlane,
        work: SlotWork,
        clock: Clock,
        worker: str,
        *,
        most_rows: int | None = None,
    ) -> None:
        """`worker` is a name that nobody has had before; `most_rows` is `options.max_iterations` of a cursor."""
        self._plan = plan
        self._number = number
        self._plane = plane
        self._work = work
        self._clock = clock
        self._worker = worker
        self._most_rows = most_rows
        self._ready: deque[Frame] = deque()
        self._running: tuple[Frame, asyncio.Task[Ran]] | None = None
        self._asking: asyncio.Task[Claimed] | None = None
        self._commits: dict[asyncio.Task[None], Frame] = {}
        self._is_broken = False
        self._seconds = {"claiming": 0.0, "running": 0.0, "committing": 0.0}
        self._claims = 0

    async def run(self) -> None:
        """Work until the slot has drained, and say so."""
        error: Json | None = None
        beating = asyncio.create_task(self._beat())
        try:
            try:
                while (frame := await self._next()) is not None:
                    await self._process(frame)
            except ClaimFailed as failed:
                error = failed.error
                await self._settle()
            report = self._report(error)
            await self._ask(lambda: self._plane.finish(self._worker, report))
        finally:
            await self._stop(beating)

    async def _stop(self, beating: asyncio.Task[None]) -> None:
        left: list[asyncio.Task[object]] = [beating, *self._commits]
        if self._running is not None:
            left.append(self._running[1])
        if self._asking is not None:
            left.append(self._asking)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _report(self, error: Json | None) -> SlotReport:
        metrics: Json = {f"{name}_ms": round(seconds * 1000, 3) for name, seconds in self._seconds.items()}
        if self._plan.kind == "loop":
            metrics["claims"] = self._claims
        return SlotReport(slot=self._number, metrics=metrics, error=error)

    # --- Taking

    async def _next(self) -> Frame | None:
        """The next frame; None when there is none, and none will come back from a commit."""
        while True:
            if self._is_broken:
                await self._settle()
                if self._asking is not None:
                    await asyncio.wait({self._asking})  # what it gives is given back when the slot has finished
                return None
            if self._ready:
                return self._ready.popleft()
            if len(self._commits) >= _MOST_COMMITS:
                await asyncio.wait(self._commits, return_when=asyncio.FIRST_COMPLETED)
                self._take_back()
                continue
            if await self._take():
                continue
            await self._settle()
            if not self._ready:
                return None

    async def _take(self) -> bool:
        """Get frames, or wait for them; False if there are none any more."""
        most = 1 if self._plan.kind == "loop" else _AT_ONCE
        claimed = await self._claimed(most)
        if claimed is None:
            return True
        self._ready += claimed.frames
        if claimed.frames or claimed.drained:
            return bool(claimed.frames)
        if claimed.wait or self._plan.kind != "loop":
            await self._clock.sleep(claimed.wait)
            return True
        if self._most_rows is not None and claimed.base_index >= self._most_rows:
            return False
        begun = time.perf_counter()
        opening = await self._work.claim(self._number)
        self._claims += 1
        self._seconds["claiming"] += time.perf_counter() - begun
        if opening is None:
            return False
        openings = (opening,)
        opened = await self._ask(lambda: self._plane.open(self._worker, openings))
        self._ready += opened
        return bool(opened)

    async def _claimed(self, most: int) -> Claimed | None:
        """What the keeper gives. It may wait for a frame whose commit is ours, and cannot be written: that is heard.

        None if the rest of a frame has come back from its commit. It is run while the keeper, which may have nothing
        else to give before that is done, goes on being asked: an answer that nobody takes would cost its frames.
        """
        asking = self._asking
        if asking is None:
            asking = asyncio.create_task(self._ask(lambda: self._plane.claim(self._number, self._worker, most=most)))
            self._asking = asking
        while not asking.done():
            if self._ready:
                return None
            await asyncio.wait({asking, *self._commits}, return_when=asyncio.FIRST_COMPLETED)
            self._take_back()
        self._asking = None
        return asking.result()

    # --- Running

    async def _process(self, frame: Frame) -> None:
        begun = time.perf_counter()
        body = asyncio.create_task(self._work.run(frame))
        self._running = (frame, body)
        await asyncio.wait([body])
        self._running = None
        self._seconds["running"] += time.perf_counter() - begun
        if body.cancelled():
            return  # lost: somebody else has it, or nobody wants it
        ran = body.result()
        self._is_broken = self._plan.kind == "loop" and bool(ran.outcome.outcomes.get("break"))
        self._commits[asyncio.create_task(self._commit(frame, ran))] = frame

    async def _commit(self, frame: Frame, ran: Ran) -> None:
        begun = time.perf_counter()
        outcome = await self._work.keep(frame, ran)
        said = (await self._ask(lambda: self._plane.commit(self._worker, (outcome,)))).get(outcome.frame_id, {})
        if "frame" in said:
            self._ready.appendleft(msgspec.convert(said["frame"], Frame))
        if "lost" in said or "terminal" in said:
            _log.info("frame %s of step '%s' was not this slot's any more", outcome.frame_id, self._plan.step)
        self._seconds["committing"] += time.perf_counter() - begun

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the keeper answers. One that cannot write for a moment is asked the same again, which does no harm."""
        for tried in range(_TRIES - 1):
            try:
                return await ask()
            except Unavailable:
                await self._clock.sleep(0.1 * 4**tried)
        return await ask()

    def _take_back(self) -> None:
        """Let go of commits that have ended. Raises what kept one from being written."""
        for task in [task for task in self._commits if task.done()]:
            del self._commits[task]
            task.result()

    async def _settle(self) -> None:
        while self._commits:
            await asyncio.wait(self._commits)
            self._take_back()

    # --- Leases

    async def _beat(self) -> None:
        """Keep the leases of all that is held. What the keeper does not renew is lost, unless it is just ending."""
        policy = self._plan.policy
        pace = min(policy.heartbeat_seconds, policy.lease_seconds / 3)
        while True:
            await self._clock.sleep(pace)
            held = self._held()
            if not held:
                continue
            try:
                kept = await self._plane.heartbeat(self._worker, held)
            except NoetlError as problem:
                _log.warning("leases of step '%s' were not renewed: %s", self._plan.step, problem)
                continue
            self._drop({frame.frame_id for frame in held} - kept.keys())

    def _held(self) -> tuple[Frame, ...]:
        running = () if self._running is None else (self._running[0],)
        return (*running, *self._ready, *self._commits.values())

    def _drop(self, lost: set[int]) -> None:
        self._ready = deque(frame for frame in self._ready if frame.frame_id not in lost)
        if self._running is not None and self._running[0].frame_id in lost:
            self._running[1].cancel()
