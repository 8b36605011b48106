"""What must hold of a ledger that forgets: at the moment when something goes, while it is away, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.errors import IntegrityMismatch
from noetl.kernel.chain import LedgerHead
from noetl.kernel.event import Recorded
from noetl.kernel.fold import State
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.kernel.time import parse_time
from noetl.ports.forgetting import Family
from noetl.replay import Cutoff
from tests.scribe import fold_all
from tests.simulation.retention.plots import Plot
from tests.simulation.retention.world import RetentionWorld
from tests.simulation.world import require

if TYPE_CHECKING:
    from tests.simulation.retention.process import Process

__all__ = ["check_away", "check_back", "check_forgotten", "check_gone", "check_reading"]

_SECOND = 1_000_000


async def check_forgotten(process: Process, family: Family) -> None:
    """A family has just gone. Was there nothing that spoke against it?"""
    from tests.simulation.retention.process import MIN_AGE

    world, name = process.world, family.root.stream_id
    plot = world.plot_of(family.root)
    begun = [member for member in plot.members if world.has_begun(member)]
    items = world.items_of(*begun)
    against = {
        "one of its family is left": set(family.heads) != set(begun),
        "it has not ended": not all(world.has_ended(member) for member in begun),
        "it is held": any(world.is_held(member) for member in begun),
        "it is young": parse_time(items[-1].event.ingest_time) > world.clock.now() - MIN_AGE * _SECOND,
        "somebody who has not ended goes back to it": any(_goes_back(process, other, begun) for other in world.plots),
        "the lake has not seen it": world.schedule.lake and [0, *world.lake][-1] < items[-1].position,
        "rows are behind": await process.projected() < items[-1].position,
        "its archive is damaged": family.root in world.damaged,
    }
    for reason, holds in against.items():
        if holds:
            world.blame(f"{name} was forgotten although {reason}")
    if family.root not in world.damaged:
        await _check_bundle(world, plot, family.uri, family.manifest_sha256)


def _goes_back(process: Process, other: Plot, members: list[Stream]) -> bool:
    """Whether somebody was known to go back to one of these when the sweep began, and has not ended."""
    world = process.world
    begun = world.items_of(other.root)
    known = world.looked.get(process.gate, 0)
    return other.origin in members and bool(begun) and begun[0].position <= known and not world.has_ended(other.root)


async def _check_bundle(world: RetentionWorld, plot: Plot, uri: str, manifest_sha256: str) -> None:
    """A bundle has every event of its family, as it was written, and is the one that was written down."""
    try:
        bundle = await world.bundle(uri)
        require(bundle.manifest_sha256 == manifest_sha256, f"{uri} is not the bundle that was written down")
        for member in plot.members:
            if not world.has_begun(member):
                continue
            archived = [event async for event in bundle.events(execution_of(member.stream_id))]
            written = [item.event for item in world.items_of(member)]
            if archived != written:
                world.blame(f"{member.stream_id}: {len(archived)} events are archived of {len(written)}")
    except IntegrityMismatch as error:
        world.blame(f"{uri}: {error}")


async def check_reading(process: Process, root: Stream) -> None:
    """A replay gives what the events give, wherever they are."""
    world = process.world
    items = world.items_of(root)
    if not items:
        return
    replayed = await process.embedded.replayer.replay(root, Cutoff(position=items[-1].position))
    if replayed.bundle() != _fold(items).bundle():
        world.blame(f"{root.stream_id}: its replay is not the fold of its events")


async def check_gone(process: Process) -> None:
    """All that could go has gone, and nothing else: faults delay, they do not prevent."""
    world = process.world
    gone = {left.root for left in await process.kept.forgotten()}
    for plot in world.plots:
        here = [member for member in plot.members if world.has_begun(member)]
        archived = await _archived(world, plot)
        has_to_stay = (
            plot.is_endless
            or plot.root in world.damaged
            or (archived is not None and archived != len(world.items_of(*here)))
        )
        may_stay = any(world.is_held(member) for member in here) or any(
            other.origin in here and other.is_endless for other in world.plots
        )  # unless it went before that
        name = plot.root.stream_id
        require(set(here) & gone in (set(), set(here)), f"only some of the family of {name} are gone")
        require(has_to_stay or may_stay or plot.root in gone, f"{name} is still there, though it may go")
        require(not has_to_stay or plot.root not in gone, f"{name} is gone, though it has to stay")


async def _archived(world: RetentionWorld, plot: Plot) -> int | None:
    """How many events a finished bundle of a family has, whether or not the index knows it; None without one."""
    folder = plot.root.stream_id.replace("/", "=")
    async for info in world.bundles.list(""):
        if info.key.endswith(f"/{folder}/manifest.json"):
            events: int = msgspec.json.decode(await world.bundles.get(info.key))["events"]
            return events
    return None


async def check_away(process: Process) -> None:
    """What is here and what is away make the whole log, each proven, and replays of both give what they gave."""
    world, embedded = process.world, process.embedded
    here = {item.position: item.event.envelope_checksum for item in await process.kept.read_all(limit=1 << 20)}
    away = {position: checksum for run in await process.kept.runs(limit=1 << 20) for position, checksum in run.items()}
    written = {item.position: item.event.envelope_checksum for item in world.log}
    require(not here.keys() & away.keys(), "an event is here, and away, too")
    require(here | away == written, "what is here and what is away are not what was written")
    head = await process.kept.ledger_head()
    walked = LedgerHead().advanced(item.event.envelope_checksum for item in world.log)
    require((head.position, head.chain_hash) == (walked.position, walked.chain_hash), "the ledger's head is another")
    found = await embedded.verifier.verify_ledger()
    require(not found.problems, f"the ledger: {found.problems[:1]}")
    for root in (member for plot in world.plots for member in plot.members if world.has_begun(member)):
        verified = await embedded.verifier.verify(root)
        require(verified.chain_ok, f"{root.stream_id}: {verified.problems[:1]}")
        require(verified.parity, f"{root.stream_id}: its rows differ: {verified.differences[:1]}")
        replayed = await embedded.replayer.replay(root)
        require(replayed.bundle() == _fold(world.items_of(root)).bundle(), f"{root.stream_id}: its replay differs")
    if world.schedule.lake:
        require(world.lake == list(range(1, len(world.log) + 1)), "the lake has a gap")


async def check_back(process: Process) -> None:
    """When all have come back, the ledger has its log again, every event at its position."""
    world = process.world
    require(not await process.kept.forgotten(), "something did not come back")
    require(not await process.kept.runs(), "something is left of what has come back")
    require(list(await process.kept.read_all(limit=1 << 20)) == world.log, "the log is not what it was")
    for plot in world.plots:
        entry = await world.index.get(plot.root)
        if entry is not None and plot.root not in world.damaged and plot.told:
            bundle = await world.bundle(entry.uri)
            require(bundle.manifest_sha256 == entry.manifest_sha256, f"{entry.uri} was changed")
            require(len([event async for event in bundle.events()]) == entry.events, f"{entry.uri} is not whole")


def _fold(items: list[Recorded]) -> State:
    return fold_all(item.event for item in items)
