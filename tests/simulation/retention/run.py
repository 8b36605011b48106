"""One run of a schedule: everybody at work while things go wrong, then rest, and then everything must add up."""

from __future__ import annotations

import asyncio
import contextlib
import traceback

from noetl.errors import NoetlError
from tests.simulation.retention import people
from tests.simulation.retention.checks import check_away, check_back, check_gone
from tests.simulation.retention.process import MIN_AGE, Process
from tests.simulation.retention.schedule import RetentionSchedule
from tests.simulation.retention.world import RetentionWorld
from tests.simulation.run import scratch_directory
from tests.simulation.runtime.gate import adopt_tasks
from tests.simulation.runtime.loop import run_virtually

__all__ = ["Went", "run_retention"]

_SETTLED = 120.0
_ROUNDS = 4

Went = tuple[str | None, RetentionWorld]


def run_retention(schedule: RetentionSchedule, adapter: str) -> Went:
    """What is wrong with a run, None if all is right; and the world as it was left."""
    with scratch_directory() as scratch:
        world = RetentionWorld(schedule, adapter, scratch)
        return _run(world), world


def _run(world: RetentionWorld) -> str | None:
    try:
        run_virtually(_see_through(world), lambda what: None if "Killed" in what else world.blame(what))
    except Exception as error:  # an error that nobody expected is a finding too
        if world.violations:
            return world.violations[0]  # what comes of it later says less
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({place.name}, {place.filename}:{place.lineno})"
    return world.violations[0] if world.violations else None


async def _see_through(world: RetentionWorld) -> None:
    adopt_tasks(asyncio.get_running_loop())
    await world.open()
    try:
        await _be_busy(world)
        process = Process(world, 0)
        await process.do(_come_to_rest(process))
    finally:
        await world.store.close()


async def _be_busy(world: RetentionWorld) -> None:
    works = [(people.tell, 20.0), (people.project, 30.0), *(people.work_of(who) for who in world.schedule.people)]
    if world.schedule.lake:
        works.append((people.follow_lake, 500.0))
    lives = [asyncio.create_task(people.live(world, number, work, pause)) for number, (work, pause) in enumerate(works)]
    await asyncio.sleep(world.schedule.busy)
    world.is_calm = True
    await asyncio.gather(*lives)


async def _come_to_rest(process: Process) -> None:
    """Nothing goes wrong any more: all is told, archived, forgotten, and in the end brought back."""
    world = process.world
    while any(plot.told < len(plot.beats) for plot in world.plots):
        await people.tell(process)
    await people.project(process)
    for _ in world.log if world.schedule.lake else ():
        await people.follow_lake(process)
    await asyncio.sleep(MIN_AGE + _SETTLED)
    for _ in range(_ROUNDS):
        with contextlib.suppress(NoetlError):
            await process.following.step()
    await people.sweep(process)
    await check_gone(process)
    await check_away(process)
    for _ in world.plots:
        await people.restore_one(process)
    await check_back(process)
    await check_away(process)
