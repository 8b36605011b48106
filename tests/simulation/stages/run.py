"""One run of a schedule: keepers come and go until the stage has an end, and then everything must add up."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

from noetl.data.frame.protocol import FramePlane, Pinned, StagePlan
from noetl.data.frame.state import Author
from noetl.errors import LeaseLost, NoetlError
from noetl.kernel.event import Json, PayloadRef
from noetl.runtime.stages.desk import Desk
from noetl.runtime.stages.keeper import Ending, StageKeeper
from noetl.runtime.stages.plane import StageServices
from tests.simulation.runtime.loop import run_virtually
from tests.simulation.stages.checks import check_stage
from tests.simulation.stages.schedule import StageSchedule
from tests.simulation.stages.slots import SimHost
from tests.simulation.stages.world import Dead, GatedLedger, Life, StageWorld
from tests.stagework import open_stage

__all__ = ["run_stage"]

_LIVES = 40
_LONGEST = 40_000.0


def run_stage(schedule: StageSchedule) -> str | None:
    """What is wrong with the end of a run; None if all is right."""
    unhandled: list[str] = []
    try:
        run_virtually(_run(schedule), unhandled.append)
    except AssertionError as error:
        return f"{type(error).__name__}: {error}"
    except (NoetlError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    return unhandled[0] if unhandled else None


async def _run(schedule: StageSchedule) -> None:
    world = StageWorld(schedule)
    await open_stage(world.ledger, world.plan)
    keepers = _Keepers(world)
    async with asyncio.timeout(_LONGEST):
        ending = await keepers.to_the_end()
    await check_stage(world, ending)


class _Keepers:
    """Whoever delivers the stage's command: again when its keeper is lost, and sometimes although it is not."""

    def __init__(self, world: StageWorld) -> None:
        self._world = world
        self._lives: list[Life] = []
        self._plane: tuple[FramePlane, Life] | None = None
        self._endings: dict[int, Ending] = {}
        self._is_wanted = True

    async def to_the_end(self) -> Ending:
        world = self._world
        canceller = asyncio.create_task(self._cancel())
        try:
            while len(self._lives) < _LIVES:
                life = self._begin()
                change = asyncio.create_task(world.changes.wait())
                assert life.main is not None
                await asyncio.wait({life.main, change}, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                if change.done() and not change.cancelled() and world.changes.is_set():
                    world.changes.clear()
                    continue  # the command is delivered to another, while this one lives on
                if life.number in self._endings:
                    return await self._last(life)
                await asyncio.sleep(world.chance.random() * 5)
            raise AssertionError(f"after {_LIVES} keepers there is no end")
        finally:
            canceller.cancel()

    async def _last(self, life: Life) -> Ending:
        """The report of the last keeper counts; the others have found out, or are stopped here."""
        for other in self._lives:
            if other.main is not None and other is not life:
                other.kill()
                await asyncio.gather(other.main, return_exceptions=True)
        return self._endings[life.number]

    def _begin(self) -> Life:
        life = Life(self._world, len(self._lives))
        self._lives.append(life)
        life.main = asyncio.create_task(self._keep(life))
        return life

    async def _keep(self, life: Life) -> None:
        world = self._world
        author = Author(organization_id="org", principal="user:ann", producer="noetl://tenant/acme")
        ledger = GatedLedger(life)
        desk = Desk(world.plan, author, ledger, world.clock, world.clock, f"k{life.number}", resolve=_same)
        services = StageServices(tell=_unheard, recorded=_same, credential=_unheard)
        keeper = StageKeeper(desk, services, world.clock, pin=self._pin, look=self._look)
        host = SimHost(world, life, lambda: self._plane)
        self._plane = (keeper.plane, life)
        with contextlib.suppress(LeaseLost, Dead, asyncio.CancelledError):
            self._endings[life.number] = await keeper.run(host)
            life.check()
        if self._plane == (keeper.plane, life) and not life.alive:
            self._plane = None

    async def _pin(self, _: StagePlan, __: PayloadRef | None) -> Pinned:
        return self._world.pinned()

    async def _look(self) -> Literal["on", "halt", "stop"]:
        return "on" if self._is_wanted else "stop"

    async def _cancel(self) -> None:
        if self._world.schedule.cancel_after is not None:
            await asyncio.sleep(self._world.schedule.cancel_after)
            self._is_wanted = False


async def _same(values: Json) -> Json:
    return values


async def _unheard(_: object) -> None:
    return None
