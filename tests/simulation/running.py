"""What each action does to a world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from noetl.errors import (
    IdempotencyMismatch,
    InvalidEvent,
    NoetlError,
    PartialDuplicate,
    StreamSealed,
    VersionConflict,
)
from noetl.kernel.event import Draft, Envelope
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream
from noetl.ports.projections import ProjectionStore
from noetl.runtime.projector import PROJECTOR
from tests.simulation import actions as act
from tests.simulation.checks import check_claim, check_replay, check_snapshots, check_verified
from tests.simulation.faults import FaultyLedger, Unanswered, snapshot_name
from tests.simulation.model import Verdict
from tests.simulation.probes import tamper, tear, transfer
from tests.simulation.stores import BROKEN, Crashed
from tests.simulation.story import root_of_script
from tests.simulation.world import RIVALS, World, require
from tests.simulation.writers import Append, Writer

__all__ = ["perform", "write"]

_UNSENT = ("crash_before", "crash_inside", "delay")
_ANSWERS: dict[type[NoetlError], str] = {
    VersionConflict: "conflict",
    PartialDuplicate: "partial",
    IdempotencyMismatch: "mismatch",
    StreamSealed: "sealed",
}


async def perform(world: World, action: act.Action) -> None:
    """Let one action happen, then look at what it left."""
    world.clock.advance(0.001)
    match action:
        case act.Open():
            _open(world, action)
        case act.Write() if world.writers:
            await write(world, world.writers[action.writer % len(world.writers)], action.fault, action.lag)
        case act.Group() if world.writers:
            await _write_group(world, action)
        case act.Tick():
            world.clock.advance(action.milliseconds / 1000)
        case act.Crash() | act.Restart():
            await world.restart(kill=isinstance(action, act.Crash))
        case act.Redeliver() | act.Deliver() | act.Probe() | act.Intrude():
            await _disturb(world, action)
        case act.Publish():
            await _publish(world, action)
        case act.Project() | act.Race() | act.Resave():
            await _project(world, action)
        case act.Snapshot() | act.Doctor() | act.Replay() | act.Verify() if world.roots:
            await _look_back(world, action)
        case act.Torn():
            await tear(world, action)
        case act.Tamper():
            await tamper(world, action)
        case act.Transfer():
            await transfer(world, action)
        case _:
            return
    await world.observe()


async def write(world: World, writer: Writer, fault: act.AppendFault, lag: int | None) -> bool:
    """A writer takes its next step. False when its script has been told."""
    append = await writer.decide(world.ledger(lag=lag or 0, page=16), reload=lag is not None)
    if append is None:
        return False
    world.sent.append(append)
    verdict = world.model.judge(append.batches) if fault in _UNSENT else world.model.accept(append.batches)
    ledger = FaultyLedger(world.store, fault=fault, process=writer.rival)
    try:
        events = await ledger.append(append.batches)
    except Crashed:
        world.note(f"{fault}")
        await world.restart(kill=True)
    except Unanswered:
        writer.pending = append
        if fault == "delay":
            world.network.append(append)
    except NoetlError as error:
        _check_refusal(world, append, verdict, error)
        writer.forget()
    else:
        require(
            ledger.first_answer is None or list(ledger.first_answer) == list(events),
            f"the same append to {append.stream.stream_id} was answered in two ways",
        )
        await _check_answer(world, append, verdict, events)
        writer.answered(events)
    return True


def _open(world: World, action: act.Open) -> None:
    if any(root_of_script(script) == root_of_script(action) for script in world.scripts):
        return
    world.scripts.append(action)
    world.writers += [Writer(action, rival) for rival in range(RIVALS)]


async def _write_group(world: World, action: act.Group) -> None:
    chosen = {number % len(world.writers): None for number in action.writers}
    members: list[tuple[Writer, Append]] = []
    for number in chosen:
        append = await world.writers[number].decide(world.ledger(), reload=False)
        if append is not None:
            members.append((world.writers[number], append))
    world.sent += [append for _, append in members]
    verdicts = [
        world.model.judge(append.batches) if number == action.broken else world.model.accept(append.batches)
        for number, (_, append) in enumerate(members)
    ]
    answers = await world.store.append_group([append.batches for _, append in members], action.broken)
    for (writer, append), verdict, answer in zip(members, verdicts, answers, strict=True):
        if answer is BROKEN:
            writer.pending = append
        elif isinstance(answer, Exception):
            _check_refusal(world, append, verdict, answer)
            writer.forget()
        else:
            await _check_answer(world, append, verdict, answer)
            writer.answered(answer)


async def _send(world: World, append: Append) -> None:
    """An append whose answer interests only us."""
    verdict = world.model.accept(append.batches)
    try:
        events = await world.store.process(0).append(append.batches)
    except NoetlError as error:
        _check_refusal(world, append, verdict, error)
    else:
        await _check_answer(world, append, verdict, events)


async def _check_answer(world: World, append: Append, verdict: Verdict, events: Sequence[Envelope]) -> None:
    world.note(verdict.answer)
    require(
        verdict.answer in ("written", "stored"),
        f"an append to {append.stream.stream_id} was accepted, but should be refused: {verdict.answer}",
    )
    await world.observe()
    there = [world.log[position - 1].event for position in verdict.positions]
    require(list(events) == there, f"the answer to an append to {append.stream.stream_id} is not what the log says")


def _check_refusal(world: World, append: Append, verdict: Verdict, error: Exception) -> None:
    world.note(f"{verdict.answer} {error}")
    answer = _ANSWERS.get(type(error)) if isinstance(error, NoetlError) else None
    require(
        answer == verdict.answer,
        f"an append to {append.stream.stream_id} should be {verdict.answer}, but: {type(error).__name__}: {error}",
    )


async def _disturb(world: World, action: act.Redeliver | act.Deliver | act.Probe | act.Intrude) -> None:
    match action:
        case act.Redeliver() if world.sent:
            await _send(world, world.sent[action.message % len(world.sent)])
        case act.Deliver() if world.network:
            await _send(world, world.network.pop(action.message % len(world.network)))
        case act.Probe() if world.sent:
            await _probe(world, world.sent[action.message % len(world.sent)], action.how)
        case act.Intrude():
            await _intrude(world, action)
        case _:
            return


async def _probe(world: World, append: Append, how: str) -> None:
    batch = append.batches[0]
    first = batch.drafts[0]
    fresh = msgspec.structs.replace(first, idempotency_key=f"{first.idempotency_key}:{len(world.log)}")
    if how == "spoiled":
        spoiled = msgspec.structs.replace(first, event_time="yesterday", idempotency_key=None)
        await _refused(world, Batch(stream=batch.stream, drafts=(fresh, spoiled)))
    elif how == "altered":
        await _send(world, _one(batch.stream, msgspec.structs.replace(first, payload={"altered": True})))
    elif world.model.judge((Batch(stream=batch.stream, drafts=(first,)),)).answer == "stored":
        await _send(world, _one(batch.stream, first, fresh))


def _one(stream: Stream, *drafts: Draft) -> Append:
    return Append((Batch(stream=stream, drafts=drafts, expected_version=1 << 40),))


async def _refused(world: World, batch: Batch) -> None:
    try:
        await world.store.ledger.append([batch])
    except InvalidEvent as error:
        world.note(str(error))
    else:
        require(False, "an append with a bad draft was accepted")


async def _intrude(world: World, action: act.Intrude) -> None:
    opened = [item.event for item in world.log if item.event.event_type == "stage.opened"]
    if not opened:
        return
    stage = opened[action.stage % len(opened)]
    straggler = Draft(
        event_type="frame.noticed",
        tenant_id=stage.tenant_id,
        organization_id=stage.organization_id,
        project_id=stage.project_id,
        principal="system",
        producer=stage.producer,
        execution_id=stage.execution_id,
        stage_id=stage.event_id,
        idempotency_key=f"straggler:{stage.event_id}:{action.mark}",
        payload={"mark": action.mark},
    )
    stream = Stream(stage.tenant_id, f"{stage.stream_id}/stage/{stage.event_id}")
    await _send(world, Append((Batch(stream=stream, drafts=(straggler,)),)))


async def _project(world: World, action: act.Project | act.Race | act.Resave) -> None:
    match action:
        case act.Project():
            await _project_pages(world, action)
        case act.Race():
            await _race(world, action)
        case act.Resave() if world.saved:
            rows = world.saved[action.message % len(world.saved)]
            saved = await world.store.projections.save(rows)
            require(saved.stale == len(rows), f"{saved.written} rows were replaced by older ones")
        case _:
            return


async def _project_pages(world: World, action: act.Project) -> None:
    projections = world.projections()
    projections.crash = (action.crash, action.at_save) if action.crash else None
    try:
        await _catch_up(world, projections, action.page, action.pages)
    except Crashed:
        await world.restart(kill=True)


async def _catch_up(world: World, projections: ProjectionStore, page: int, pages: int) -> None:
    reached = await world.store.projections.checkpoint(PROJECTOR)
    ledger = world.ledger_until(reached + page * pages, page=page)
    caught = await world.projector(ledger, projections).catch_up()
    world.note(f"caught up {caught.position}")


async def _race(world: World, action: act.Race) -> None:
    first = world.projections()

    async def overtake() -> None:
        if world.writers:
            await write(world, world.writers[action.writer % len(world.writers)], "none", None)
            await world.observe()
        await _catch_up(world, world.projections(), action.other_page, action.other_pages)

    if action.at == "load":
        first.before_load = overtake
    else:
        first.before_save = overtake
    await _catch_up(world, first, action.page, 1 << 20)


async def _look_back(world: World, action: act.Snapshot | act.Doctor | act.Replay | act.Verify) -> None:
    root = world.roots[action.root % len(world.roots)]
    match action:
        case act.Snapshot():
            taken = await world.replayer().snapshot(root)
            world.note(taken.checksum)
        case act.Doctor():
            newest = await world.store.projections.snapshots(root, at_or_before=len(world.log), limit=1)
            if newest:
                world.doctored[snapshot_name(root, newest[0].position)] = action.how
                await check_snapshots(world, root)
        case act.Replay():
            await check_replay(world, root, action)
        case act.Verify(writer=None):
            await check_verified(world, root)
        case act.Verify():
            await check_verified(world, root, _meanwhile(world, action.writer or 0))


def _meanwhile(world: World, writer: int) -> Callable[[], Awaitable[None]]:
    """What goes on while somebody looks: a writer writes, the projector moves on."""

    async def work() -> None:
        await write(world, world.writers[writer % len(world.writers)], "none", None)
        await world.observe()
        await _catch_up(world, world.projections(), 5, 2)

    return work


async def _publish(world: World, action: act.Publish) -> None:
    owner = f"publisher-{action.owner}"
    places = await check_claim(world, owner, action.limit)
    if action.how == "died":
        return
    told = [] if action.how == "failed" else places[: len(places) // 2] if action.how == "some" else places
    untold = places[len(told) :]
    published = await world.store.outbox.mark_published(owner, told)
    failed = await world.store.outbox.mark_failed(owner, untold, retry_in=1)
    expected = world.outbox.publish(owner, told), world.outbox.fail(owner, untold, world.clock.now() + 1_000_000)
    require((published, failed) == expected, f"{published} rows were published and {failed} failed, not {expected}")
