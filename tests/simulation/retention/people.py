"""Who is at work in a run: each in a process of its own, started again when it dies, until the run comes to rest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from noetl.errors import Archived, Conflict, Corruption, InvalidEvent, NoetlError
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_of, telemetry_stream
from noetl.kernel.tail import Stream
from noetl.runtime.archiving.restoring import restore
from noetl.runtime.holds import Holds
from tests.simulation.retention.checks import check_reading
from tests.simulation.retention.plots import said
from tests.simulation.retention.process import Process
from tests.simulation.retention.schedule import Person
from tests.simulation.retention.world import RetentionWorld
from tests.simulation.runtime.gate import Killed

__all__ = ["archive", "follow_lake", "live", "project", "restore_one", "sweep", "tell", "work_of"]

Work = Callable[[Process], Coroutine[Any, Any, object]]


async def live(world: RetentionWorld, number: int, work: Work, pause: float) -> None:
    """Do a piece of work again and again, in one process after the other, until nobody needs it any more."""
    while not world.is_calm:
        process = Process(world, number)
        try:
            await process.do(_rounds(process, work, pause))
        except (Killed, asyncio.CancelledError):
            if process.gate.alive:
                raise  # this run was ended, and not the process
        world.looked.pop(process.gate, None)
        await asyncio.sleep(world.chance.uniform(0, pause))


async def _rounds(process: Process, work: Work, pause: float) -> None:
    world = process.world
    while not world.is_calm:
        await asyncio.sleep(world.chance.uniform(0, pause))
        try:
            await work(process)
        except (InvalidEvent, Corruption) as error:
            world.blame(f"{work.__name__}: {error}")
        except NoetlError:
            continue  # it is tried again


async def tell(process: Process) -> None:
    """The next append of one of the executions."""
    world = process.world
    now = asyncio.get_running_loop().time()
    open_ = [
        plot for plot in world.plots if plot.told < len(plot.beats) and (world.is_calm or plot.begins_after <= now)
    ]
    if open_:
        plot = world.chance.choice(open_)
        at = plot.told
        await process.embedded.ledger.append(await plot.beats[at](process.embedded.ledger))
        plot.told = at + 1


async def project(process: Process) -> None:
    """Bring the rows up to date."""
    await process.embedded.projector.catch_up()


async def follow_lake(process: Process) -> None:
    """Copy what is new, as far as it is still there."""
    lake = process.world.lake
    page = await process.embedded.ledger.read_all(after_position=lake[-1] if lake else 0, limit=20)
    lake += [item.position for item in page if not lake or item.position > lake[-1]]


async def archive(process: Process) -> None:
    """Archive what has ended; now and then whatever somebody asks for."""
    if process.world.chance.random() < 0.3:
        await process.archiver.archive(process.world.chance.choice(process.world.plots).root)
    await process.following.step()


async def sweep(process: Process) -> None:
    """Take out of the ledger what may go."""
    world = process.world
    world.looked[process.gate] = await process.projected()
    try:
        async for _ in process.retention.sweep(apply=True):
            await process.gate.awake()
    finally:
        world.looked.pop(process.gate, None)


async def restore_one(process: Process) -> bool:
    """Bring one of those back that are gone; False if there is none."""
    left = await process.kept.forgotten()
    if not left:
        return False
    one = process.world.chance.choice(left)
    bundle = await process.open_bundle(one.uri)
    await restore(msgspec.structs.replace(process.embedded, home=process.home), bundle, one.uri)
    return True


async def hold(process: Process) -> None:
    """Place a hold on somebody, or take it away."""
    world = process.world
    root = world.chance.choice(world.chance.choice(world.plots).members)
    holds = Holds(process.embedded, process.embedded.settings)
    await (holds.release if world.is_held(root) else holds.place)(root, "case 4711")


async def straggle(process: Process) -> None:
    """Say something more of an execution that has ended."""
    world = process.world
    root = world.chance.choice(world.chance.choice(world.plots).members)
    if not world.has_ended(root) or world.chance.random() < 0.8:
        return
    stream = Stream(root.tenant_id, telemetry_stream(execution_of(root.stream_id) or 0))
    drafts = [said("command.heartbeat", root, command_id=99)]
    with contextlib.suppress(Archived):
        await process.embedded.ledger.append([Batch(stream=stream, drafts=drafts)])


async def vandalise(process: Process) -> None:
    """Cut an object of an archive whose events are still in the ledger, while nobody relies on it."""
    world = process.world
    plot = world.chance.choice(world.plots)
    entry = await world.index.get(plot.root)
    if entry is None or world.looked or world.damaged or await world.store.ledger.forgotten(root=plot.root):
        return
    prefix = (await world.bundle(entry.uri)).prefix
    keys = sorted([info.key async for info in world.bundles.list(prefix)])
    for key in [key for key in keys if "/segment" in key and key.endswith(".zst")][:1]:
        await world.bundles.put(key, (await world.bundles.get(key))[:-9], overwrite=True)
        world.damaged.add(plot.root)


async def read(process: Process) -> None:
    """Replay somebody, wherever the events are."""
    world = process.world
    root = world.chance.choice(world.chance.choice(world.plots).members)
    with contextlib.suppress(Archived, Conflict):  # it went, or came back, while it was read
        await check_reading(process, root)


_WORK: dict[Person, tuple[Work, float]] = {
    "archiver": (archive, 60.0),
    "sweeper": (sweep, 60.0),
    "restorer": (restore_one, 200.0),
    "holder": (hold, 80.0),
    "straggler": (straggle, 90.0),
    "vandal": (vandalise, 100.0),
    "reader": (read, 40.0),
}


def work_of(person: Person) -> tuple[Work, float]:
    """What somebody does, and how long they rest at most."""
    return _WORK[person]
