"""The plane of a slot that goes first after others were lost: it runs what they have left, one frame at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from noetl.data.frame.protocol import Claimed, Frame, FrameOutcome, FramePlane, Opening, SlotReport
from noetl.kernel.event import Json

__all__ = ["CarefulPlane"]


class CarefulPlane:
    """Stands before another plane, until the first frame that nobody has begun before."""

    def __init__(self, plane: FramePlane) -> None:
        self._plane = plane
        self._is_through = False
        self._settled = asyncio.Event()
        self._settled.set()

    async def claim(self, slot: int, worker: str, *, most: int = 1) -> Claimed:
        """One frame, when the one before is written down; drained when all that were begun are done."""
        await self._settled.wait()
        if self._is_through:
            return Claimed(drained=True)
        claimed = await self._plane.claim(slot, worker, most=1)
        if not claimed.frames:
            return claimed if claimed.wait else Claimed(drained=True)
        self._settled.clear()
        self._is_through = claimed.frames[0].attempt == 1  # it is this slot's now, and the last one
        return claimed

    async def open(self, worker: str, openings: tuple[Opening, ...]) -> tuple[Frame, ...]:
        """Record frames of a cursor."""
        return await self._plane.open(worker, openings)

    async def heartbeat(self, worker: str, frames: tuple[Frame, ...]) -> dict[int, str]:
        """Renew leases."""
        kept = await self._plane.heartbeat(worker, frames)
        if any(frame.frame_id not in kept for frame in frames):
            self._settled.set()  # it is lost: nothing will be said of it
        return kept

    async def commit(self, worker: str, outcomes: tuple[FrameOutcome, ...]) -> dict[int, Json]:
        """Write down what came of frames."""
        try:
            return await self._plane.commit(worker, outcomes)
        finally:
            self._settled.set()

    async def finish(self, worker: str, report: SlotReport) -> None:
        """Nothing: the slots that come after this one will say it."""

    async def credential(self, alias: str) -> Any:
        """The data of a credential."""
        return await self._plane.credential(alias)
