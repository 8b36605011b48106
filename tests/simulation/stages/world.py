"""The world around a stage: its ledger, the work queue of a cursor, and everything that bodies have done."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from noetl.adapters.memory.ledger import MemoryLedger
from noetl.data.frame.protocol import Frame, Pinned, Slice, StagePlan
from noetl.errors import StorageFull, Unavailable
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import stage_stream
from noetl.kernel.tail import Stream
from tests.scribe import START
from tests.simulation.stages.schedule import Fault, StageSchedule
from tests.stagework import EXECUTION, STAGE, TENANT, plan_of, reference

__all__ = ["Dead", "GatedLedger", "Life", "LoopClock", "Lost", "StageWorld", "reached"]

T = TypeVar("T")
LEASE = 20.0


class Dead(BaseException):
    """The process does not exist any more; nothing in it may catch this."""


class Lost(Exception):
    """A message, or its answer, did not arrive."""


class LoopClock:
    """The virtual loop's own time."""

    def now(self) -> int:
        """Microseconds since 1970."""
        return START + round(asyncio.get_running_loop().time() * 1_000_000)

    async def sleep(self, seconds: float) -> None:
        """Return after that much of it."""
        await asyncio.sleep(seconds)


class Life:
    """One keeper's process. Once it is dead, nothing of it reaches the world."""

    def __init__(self, world: StageWorld, number: int) -> None:
        self.world = world
        self.number = number
        self.alive = True
        self.died = asyncio.Event()
        self.main: asyncio.Task[None] | None = None

    def kill(self) -> None:
        """End it here and now."""
        self.alive = False
        self.died.set()
        if self.main is not None:
            self.main.cancel()

    def check(self) -> None:
        """Nothing gets through from a process that is dead."""
        if not self.alive:
            raise Dead


class StageWorld:
    """What is there, whoever keeps the stage."""

    def __init__(self, schedule: StageSchedule) -> None:
        self.schedule = schedule
        self.chance = random.Random(f"stage/{schedule.seed}")
        self.clock = LoopClock()
        self.ledger = MemoryLedger(self.clock)
        self.plan: StagePlan = plan_of(
            schedule.kind, slots=schedule.slots, failure=schedule.failure, lease_seconds=LEASE,
            max_attempts=schedule.max_attempts, max_rows=schedule.max_rows,
        )  # fmt: skip
        self.sizes = [self.chance.randint(1, schedule.max_rows) for _ in range(schedule.frames)]
        self.queue: list[int] = list(range(sum(self.sizes)))
        self.recorded: dict[str, list[int]] = {}
        """Rows that slots of a cursor have stored, by the digest of what they stored."""
        self.claims: dict[str, tuple[str, list[int]]] = {}
        """Rows that were taken from the queue, by what they were stored as, and by whom."""
        self.gone: set[str] = set()
        """Workers that will never come back."""
        self.effects: Counter[tuple[int, int, int]] = Counter()
        self.answered: dict[int, int] = {}
        """Commits that a slot was told of: frame to event."""
        self.appends = 0
        self.changes = asyncio.Event()
        self.faults: dict[int, Fault] = {fault.nth: fault for fault in schedule.faults}

    @property
    def stream(self) -> Stream:
        """The stream of the stage."""
        return Stream(TENANT, stage_stream(EXECUTION, STAGE))

    def pinned(self) -> Pinned:
        """The input of a fan-out."""
        slices = tuple(Slice(part={"n": n}, rows=rows) for n, rows in enumerate(self.sizes))
        return Pinned(ref=reference("pinned"), slices=slices)

    async def events(self) -> list[Envelope]:
        """What was written about frames."""
        return [item.event for item in await self.ledger.read(self.stream, limit=1 << 20)]

    def is_bad(self, frame: Frame, row: int) -> bool:
        """Whether a row fails. It does so every time."""
        place = f"{self.schedule.seed}/{frame.slot}/{frame.claim_index}/{frame.claim_row + row}"
        return random.Random(place).random() < self.schedule.bad

    async def claim_rows(self, worker: str) -> tuple[str, list[int]]:
        """The author's claim: rows nobody has, or whose taker died before it had recorded them."""
        written = {event.payload_ref.sha256 for event in await self.events() if event.payload_ref is not None}
        for name, (taker, rows) in list(self.claims.items()):
            if taker in self.gone and reference(name).sha256 not in written:
                del self.claims[name]
                self.queue += rows
        count = self.chance.randint(1, self.schedule.max_rows)
        rows, self.queue = self.queue[:count], self.queue[count:]
        name = f"c{len(self.recorded)}"
        self.recorded[reference(name).sha256] = rows
        if rows:
            self.claims[name] = (worker, rows)
        return name, rows

    def left(self, recorded: set[str]) -> Counter[int]:
        """Rows of the queue that nobody has recorded: still in it, or taken by somebody who died at once."""
        taken = [rows for name, (_, rows) in self.claims.items() if reference(name).sha256 not in recorded]
        return Counter([*self.queue, *(row for rows in taken for row in rows)])


class GatedLedger:
    """The ledger as one process sees it, with what happens to its appends."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._world = life.world

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Append, unless something is in the way."""
        world, life = self._world, self._life
        await self._pass()
        world.appends += 1
        fault = world.faults.get(world.appends)
        what = fault.what if fault is not None else ""
        if what == "change":
            world.changes.set()
        if what == "crash_before":
            life.kill()
            raise Dead
        if what == "fail_before":
            raise Unavailable("no answer")
        if what == "full_before":
            raise StorageFull("the disk is full")
        events = await world.ledger.append(batches)
        if what == "crash_after":
            life.kill()
            raise Dead
        if what == "fail_after":
            raise Unavailable("no answer")
        await self._pass()
        return events

    async def read(
        self, stream: Stream, *, after_version: int = 0, to_version: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Read."""
        await self._pass()
        return await self._world.ledger.read(stream, after_version=after_version, to_version=to_version, limit=limit)

    async def _pass(self) -> None:
        self._life.check()
        if self._world.chance.random() < 0.4:
            await asyncio.sleep(self._world.chance.random() * 0.05)
        self._life.check()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.ledger, name)


async def reached(life: Life, act: Awaitable[T]) -> T:
    """The answer of a process, to somebody outside of it. Raises Lost when it dies before it has answered."""
    answer, death = asyncio.ensure_future(act), asyncio.create_task(life.died.wait())
    try:
        await asyncio.wait({answer, death}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Lost
        return answer.result()
    finally:
        for task in (answer, death):
            task.cancel()
        await asyncio.gather(answer, death, return_exceptions=True)
