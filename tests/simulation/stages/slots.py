"""Slots that do what slots do, over a network and with bodies that cannot be relied on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from noetl.data.frame.protocol import Claimed, Frame, FrameOutcome, FramePlane, Opening, Returned, SlotReport, StagePlan
from noetl.kernel.event import Json
from tests.simulation.stages.world import LEASE, Life, Lost, StageWorld, reached
from tests.stagework import Here, reference

__all__ = ["SimHost"]

T = TypeVar("T")
Reach = tuple[FramePlane, Life]
"""Whoever keeps the stage, and the process that this is."""
_TRIES = 4
_names = itertools.count()


class _Died(Exception):
    """A slot is no more."""


class SimHost(Here):
    """Runs slots inside of the keeper's process, or outside, where they outlive it and reach whoever keeps then."""

    def __init__(self, world: StageWorld, life: Life, current: Callable[[], Reach | None]) -> None:
        self._world = world
        self._life = life
        self._current = current

    async def run(self, plan: StagePlan, plane: FramePlane, slots: Sequence[int]) -> None:
        """Run slots until they have drained or died."""
        outside = self._world.schedule.outside
        tasks = []
        for slot in slots:
            worker = f"{self._life.number}/{slot}/{self._world.appends}/{len(self._world.gone)}/{next(_names)}"
            reach = self._current if outside else (lambda: (plane, self._life))
            tasks.append(asyncio.create_task(_Slot(self._world, slot, worker, reach).run()))
        try:
            await asyncio.wait(tasks)
        finally:
            if not outside:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


class _Slot:
    def __init__(self, world: StageWorld, slot: int, worker: str, reach: Callable[[], Reach | None]) -> None:
        self._world = world
        self._chance = world.chance
        self._slot = slot
        self._worker = worker
        self._reach = reach
        self._is_broken = False

    async def run(self) -> None:
        try:
            await self._loop()
            await self._send(lambda plane: plane.finish(self._worker, SlotReport(slot=self._slot)))
        except (_Died, Lost):
            pass
        finally:
            self._world.gone.add(self._worker)

    async def _loop(self) -> None:
        while True:
            most = self._chance.randint(1, 3)
            claimed: Claimed = await self._send(lambda plane: plane.claim(self._slot, self._worker, most=most))  # noqa: B023
            frames = list(claimed.frames)
            if not frames:
                if claimed.drained:
                    return
                if claimed.wait:
                    await asyncio.sleep(claimed.wait)
                    continue
                frames = await self._open()
                if not frames:
                    return
            while frames:
                frames += await self._run(frames.pop(0))

    async def _open(self) -> list[Frame]:
        name, rows = await self._world.claim_rows(self._worker)
        if not rows:
            return []
        self._die_perhaps()
        opening = Opening(slot=self._slot, rows=reference(name, rows=len(rows)), row_count=len(rows), claim_id=name)
        return list(await self._send(lambda plane: plane.open(self._worker, (opening,))))

    async def _run(self, frame: Frame) -> list[Frame]:
        """Run a frame and commit it; what is left of it, if anything."""
        schedule = self._world.schedule
        done = frame.row_count
        if done > 1 and self._chance.random() < schedule.splits:
            done = self._chance.randint(1, done - 1)
        beating = asyncio.create_task(self._beat(frame))
        try:
            if self._chance.random() < schedule.slow:
                beating.cancel()
                await asyncio.sleep(LEASE * (1 + self._chance.random()))
            for row in range(done):
                self._world.effects[frame.slot, frame.claim_index, frame.claim_row + row] += 1
                await asyncio.sleep(self._chance.random() * 0.3)
                self._die_perhaps()
        finally:
            beating.cancel()
        outcome = self._outcome(frame, done)
        answers: dict[int, Json] = await self._send(lambda plane: plane.commit(self._worker, (outcome,)))
        said = answers[frame.frame_id]
        if "event_id" in said:
            self._world.answered[frame.frame_id] = said["event_id"]
        return [msgspec.convert(said["frame"], Frame)] if "frame" in said else []

    def _outcome(self, frame: Frame, done: int) -> FrameOutcome:
        bad = [row for row in range(done) if self._world.is_bad(frame, row)]
        rest = None
        if done < frame.row_count:
            rest = Opening(slot=frame.slot, rows=frame.rows, slice=frame.slice, row_count=frame.row_count - done)
        name = f"o{frame.slot}.{frame.index}.{frame.attempt}"
        is_told = frame.index % 2 == 1
        return FrameOutcome(
            frame_id=frame.frame_id,
            token=frame.token,
            rows=done,
            outcomes={"ok": done - len(bad), "error": len(bad)},
            output=None if is_told else reference(name, rows=done - len(bad), size=done),
            returned=Returned(results=[name], bytes=done, which=[0] * (done - len(bad))) if is_told else None,
            set={"ctx.last": f"{frame.slot}.{frame.claim_index}.{frame.claim_row}"},
            errors=tuple({"row": row, "error": {"message": f"row {row}"}} for row in bad),
            rest=rest,
        )

    async def _beat(self, frame: Frame) -> None:
        while True:
            await asyncio.sleep(LEASE / 4)
            found = self._reach()
            if found is not None:
                await found[0].heartbeat(self._worker, (frame,))

    def _die_perhaps(self) -> None:
        if self._chance.random() < self._world.schedule.deadly / 3:
            raise _Died

    async def _send(self, act: Callable[[FramePlane], Awaitable[T]]) -> T:
        """A message and its answer. Whoever gets none asks again, and gives up in the end."""
        for _ in range(_TRIES):
            found = self._reach()
            try:
                if found is None:
                    raise Lost
                return await self._pass(act, *found)
            except Lost:
                await asyncio.sleep(self._chance.random() * 3)
        raise Lost

    async def _pass(self, act: Callable[[FramePlane], Awaitable[T]], plane: FramePlane, life: Life) -> T:
        lossy, chance = self._world.schedule.lossy, self._chance
        if chance.random() < lossy / 2:
            raise Lost
        if chance.random() < lossy / 2:
            await asyncio.sleep(chance.random() * LEASE)
        if chance.random() < lossy / 2:
            first, second = await asyncio.gather(reached(life, act(plane)), reached(life, act(plane)))
            return chance.choice((first, second))
        answer = await reached(life, act(plane))
        if chance.random() < lossy / 2:
            raise Lost
        return answer
