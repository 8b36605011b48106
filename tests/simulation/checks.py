"""What must hold of a log and of everything derived from it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence

from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.fold import State, apply, new_state, state_checksum
from noetl.kernel.tail import Stream
from noetl.kernel.time import parse_time
from noetl.kernel.vocabulary import TERMINAL_TYPES
from noetl.replay import Cutoff, Replayed
from noetl.runtime.projector import PROJECTOR
from tests.simulation.actions import Replay
from tests.simulation.faults import FaultyLedger, snapshot_name
from tests.simulation.world import World, require

__all__ = ["check_claim", "check_everything", "check_replay", "check_snapshots", "check_verified"]

_PUBLISHER = "publisher"
_LEASE = 30
_LONG = 86_400.0


async def check_replay(world: World, root: Stream, action: Replay) -> None:
    """A replay up to somewhere gives what the events up to there give, whether or not snapshots help."""
    events = world.events_of(root)
    chosen = events[min(int(action.at * len(events)), len(events) - 1)]
    cutoff, included = _cut(world, events, chosen, action)
    replayer = world.replayer()
    plain = await replayer.replay(root, cutoff, snapshots=False)
    helped = await replayer.replay(root, cutoff)
    expected = _fold(root, included)
    where = f"{root.stream_id} as of {action.by} of event {chosen.event.event_id}"
    require(plain.bundle() == expected.bundle(), f"{where}: the replay is not the fold of its events")
    require(helped.bundle() == expected.bundle(), f"{where}: the replay with snapshots differs from the one without")
    require(helped.checksum() == plain.checksum(), f"{where}: the state checksums differ")
    require(helped.last_ingest_time == plain.last_ingest_time, f"{where}: the last ingest times differ")
    world.note(helped.checksum())


def _cut(world: World, events: Sequence[Recorded], chosen: Recorded, action: Replay) -> tuple[Cutoff, list[Envelope]]:
    if action.by == "time":
        moment = min(parse_time(chosen.event.ingest_time), world.clock.now())
        return Cutoff(time=moment), [item.event for item in events if parse_time(item.event.ingest_time) <= moment]
    cutoff = Cutoff(position=chosen.position) if action.by == "position" else Cutoff(event_id=chosen.event.event_id)
    return cutoff, [item.event for item in events if item.position <= chosen.position]


async def check_snapshots(world: World, root: Stream) -> None:
    """Damaged snapshots are not used, each is reported with a reason, and the state is right all the same."""
    replayed = await world.replayer().replay(root)
    kept = await world.store.projections.snapshots(root, at_or_before=len(world.log))
    bad = [snapshot.position for snapshot in kept if snapshot_name(root, snapshot.position) in world.doctored]
    used = replayed.snapshot.position if replayed.snapshot else 0
    require(used not in bad, f"{root.stream_id}: a damaged snapshot at {used} was used")
    rejected = {item.position: item.reason for item in replayed.rejected}
    missed = [position for position in bad if position > used and not rejected.get(position)]
    require(not missed, f"{root.stream_id}: damaged snapshots at {missed} were not reported")
    require(set(rejected) <= set(bad), f"{root.stream_id}: sound snapshots were rejected: {rejected}")
    expected = _fold(root, [item.event for item in world.events_of(root)])
    require(replayed.bundle() == expected.bundle(), f"{root.stream_id}: the replay is not the fold of its events")


async def check_verified(world: World, root: Stream, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
    """Nothing is wrong with a root, and the verifier says so, whatever is written while it looks."""
    if not await world.store.projections.checkpoint(PROJECTOR):
        return  # there is nothing live yet that the log could be compared with
    before = len(world.events_of(root))
    ledger = FaultyLedger(world.store, page=9)
    ledger.before_audit = meanwhile
    found = await world.verifier(ledger).verify(root)
    require(found.keyed, "the ledger is not keyed")
    require(found.chain_ok, f"{root.stream_id}: {found.problems[:1]}")
    require(found.parity, f"{root.stream_id}: live rows differ from the log: {found.differences[:1]}")
    await world.observe()
    after = len(world.events_of(root))
    require(before <= found.events <= after, f"{root.stream_id}: {found.events} of {after} events were verified")


async def check_everything(world: World) -> None:
    """The end of a run: the log has not changed since it was read, and all that is derived from it agrees."""
    await world.observe()
    await _check_unchanged(world)
    await _check_outbox(world)
    caught = await world.projector(world.ledger(page=50), world.projections()).catch_up()
    require(caught.position == len(world.log), f"the projector stopped at {caught.position}")
    await world.observe()
    for root in world.roots:
        await check_verified(world, root)
        await check_snapshots(world, root)
        await _check_orders(world, root)
        _check_endings(world.events_of(root))
    ledger = await world.verifier().verify_ledger()
    require(not ledger.problems, f"the ledger: {ledger.problems[:1]}")
    require(ledger.position == len(world.log), f"the ledger ends at {ledger.position}")
    await _check_told(world)


async def _check_unchanged(world: World) -> None:
    log: list[Recorded] = []
    while page := await world.store.ledger.read_all(after_position=len(log), limit=13):
        log += page
    require(log == world.log, "an event that was read before is no longer the same")


async def _check_outbox(world: World) -> None:
    world.clock.advance(_LONG)  # every claim has lapsed by then
    await check_claim(world, _PUBLISHER, limit=len(world.log) + 1)
    await world.store.outbox.mark_failed(_PUBLISHER, world.outbox.pending(len(world.log)), retry_in=0)


async def check_claim(world: World, owner: str, limit: int) -> list[int]:
    """A publisher gets the oldest rows that nobody else holds, and they are the events that were committed."""
    now = world.clock.now()
    expected = world.outbox.claim(owner, len(world.log), limit, now, now + _LEASE * 1_000_000)
    claimed = await world.store.outbox.claim(owner, limit=limit, lease_seconds=_LEASE)
    require([(row.position, row.attempts) for row in claimed] == expected, f"{owner} claimed other rows than were due")
    told = [world.log[row.position - 1].event == row.event for row in claimed]
    require(all(told), "a row of the outbox is not the event at its position")
    return [row.position for row in claimed]


async def _check_orders(world: World, root: Stream) -> None:
    events = [item.event for item in world.events_of(root)]
    replayed = await world.replayer().replay(root, snapshots=False)
    shuffled = _fold(root, _interleaved(events, random.Random(len(events))))
    require(shuffled.bundle() == replayed.bundle(), f"{root.stream_id}: another order of its streams, another state")
    _check_state(world, replayed, events)
    world.note(replayed.checksum())


def _check_state(world: World, replayed: Replayed, events: Sequence[Envelope]) -> None:
    """A few facts of the state that can be had without a fold."""
    head = replayed.state.root
    require(head.event_count == len(events), f"{replayed.root.stream_id} counts {head.event_count} events")
    require(head.last_event_id == max(event.event_id for event in events), "last_event_id is not the last event's id")
    checksum = state_checksum(replayed.bundle(), world.registry.digest())
    require(replayed.checksum() == checksum, "the state checksum is not that of its bundle")


def _check_endings(items: Sequence[Recorded]) -> None:
    """One end to an execution, and nothing in a stage after it was closed."""
    endings = [item.event for item in items if item.event.event_type in TERMINAL_TYPES]
    require(len(endings) <= 1, f"{len(endings)} events end one execution")
    for item in items:
        seal = item.event.payload.get("seal")
        if seal is not None and seal["final"]:
            late = [other for other in items if other.event.stream_id == seal["stream_id"]]
            require(
                all(other.position < item.position for other in late) and len(late) == seal["count"],
                f"{seal['stream_id']} has events after it was closed",
            )


async def _check_told(world: World) -> None:
    """Every script was told to its end: faults delay, they do not prevent."""
    for script, writer in zip(world.scripts, world.writers[::2], strict=True):
        ended = [item for item in world.events_of(writer.root) if item.event.event_type in TERMINAL_TYPES]
        require(script.kind != "execution" or len(ended) == 1, f"{writer.root.stream_id} did not end")
        require(await writer.decide(world.ledger(), reload=True) is None, f"{writer.root.stream_id} has more to tell")


def _fold(root: Stream, events: Iterable[Envelope]) -> State:
    state = new_state(root.stream_id)
    for event in events:
        apply(state, event)
    return state


def _interleaved(events: Sequence[Envelope], chance: random.Random) -> list[Envelope]:
    """The events in an order that keeps each stream's own order and nothing else."""
    streams: dict[str, list[Envelope]] = {}
    for event in events:
        streams.setdefault(event.stream_id, []).append(event)
    queues = [streams[name] for name in sorted(streams)]
    order = [number for number, queue in enumerate(queues) for _ in queue]
    chance.shuffle(order)
    taken = [iter(queue) for queue in queues]
    return [next(taken[number]) for number in order]
