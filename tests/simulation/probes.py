"""Things done to copies: torn files, tampering, export and import. The run itself goes on untouched."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from noetl.archive.exchange import checked, open_log, read_log
from noetl.errors import Conflict, Corruption, InvalidEvent, NoetlError, Unavailable
from noetl.kernel.event import Envelope, Recorded, checksum_of, record_of
from noetl.kernel.tail import Stream
from noetl.replay import Verifier
from noetl.runtime.projector import PROJECTOR, Projector
from tests.simulation.actions import Tamper, Torn, Transfer
from tests.simulation.stores import BROKEN, MemoryStore, SqliteStore, Store, copy_files
from tests.simulation.tampering import TAMPERINGS, Tampering
from tests.simulation.world import World, require

__all__ = ["tamper", "tear", "transfer"]


@contextlib.contextmanager
def _image(world: World) -> Iterator[SqliteStore]:
    """A store on a copy of the files, not opened yet."""
    assert isinstance(world.store, SqliteStore)
    home = world.scratch / "probe"
    store = SqliteStore(world.clock, home)
    copy_files(world.store.directory, store.directory)
    try:
        yield store
    finally:
        shutil.rmtree(home)


async def tear(world: World, action: Torn) -> None:
    """Cut a file at some byte. What opens afterwards is whole; what is not whole does not open."""
    if not isinstance(world.store, SqliteStore):
        return
    with _image(world) as store:
        name = {"db": "ledger.db", "wal": "ledger.db-wal"}[action.file]
        _cut(store.directory / name, action.at)
        kept = _log_of_emptied(store.directory)
        try:
            await store.open()
        except (Corruption, Unavailable) as error:
            clear = any(word in str(error) for word in ("ledger", "the log", "event "))
            require(clear, f"a torn {name} gave an unclear message: {error}")
            require(kept == _log_of_emptied(store.directory), f"opening a torn {name} has made it worse")
            world.note(type(error).__name__)
        else:
            await _check_whole(world, store, f"with a torn {name}")
        finally:
            await _close(store)


def _cut(path: Path, at: float) -> None:
    if path.exists():
        os.truncate(path, int(path.stat().st_size * at))


def _log_of_emptied(directory: Path) -> bytes:
    """What is left of the write-ahead log beside a database that is empty: SQLite would delete it."""
    log = directory / "ledger.db-wal"
    return b"" if (directory / "ledger.db").stat().st_size or not log.exists() else log.read_bytes()


async def _close(store: SqliteStore) -> None:
    with contextlib.suppress(AttributeError):  # the ledger of a file that did not open was never made
        await store.close()


async def _check_whole(world: World, store: Store, where: str) -> None:
    log = await store.ledger.read_all(limit=len(world.log) + 1)
    require(list(log) == world.log, f"{where} {len(world.log) - len(log)} acknowledged events are lost unseen")
    verifier = Verifier(store.ledger, store.projections, world.replayer(store.projections, store.ledger), PROJECTOR)
    projected = await store.projections.checkpoint(PROJECTOR)
    for root in world.roots if projected else ():
        found = await verifier.verify(root)
        require(found.ok, f"{where} {root.stream_id} does not verify: {found.problems[:1]} {found.differences[:1]}")
    ledger = await verifier.verify_ledger()
    require(not ledger.problems, f"{where} the ledger does not verify: {ledger.problems[:1]}")
    world.note("whole")


async def tamper(world: World, action: Tamper) -> None:
    """Change a copy behind the ledger's back. The verifier must see it and name it."""
    if not isinstance(world.store, SqliteStore) or not world.log:
        return
    with _image(world) as store:
        done = await TAMPERINGS[action.kind](world, store.directory, action.pick)
        if done is None:
            return
        try:
            (store.directory / "ledger.anchor").unlink(missing_ok=True)
            await store.open(examine=True)
            await _check_detected(world, store, done)
        except Corruption as error:
            require(done.named_in(str(error)), f"{done.what} was reported as something else: {error}")
        finally:
            await _close(store)


async def _check_detected(world: World, store: SqliteStore, done: Tampering) -> None:
    verifier = Verifier(store.ledger, store.projections, world.replayer(store.projections, store.ledger), PROJECTOR)
    said: list[str] = []
    for root in world.roots:
        with contextlib.suppress(NoetlError):  # a root that is gone altogether is the ledger's to miss
            found = await verifier.verify(root)
            said += [f"{problem.what} {problem.event_id}" for problem in found.problems]
            said += [str(difference) for difference in found.differences]
    said += [f"ledger: {problem.what} {problem.event_id}" for problem in (await verifier.verify_ledger()).problems]
    require(bool(said), f"{done.what} was not seen")
    require(any(map(done.named_in, said)), f"{done.what} was seen but not named: {said[:3]}")
    world.note(said[0])


async def transfer(world: World, action: Transfer) -> None:
    """Take everything to a fresh ledger of the other kind, where it must mean the same."""
    if not world.log:
        return
    home = world.scratch / "transfer"
    fresh: Store = SqliteStore(world.clock, home) if isinstance(world.store, MemoryStore) else MemoryStore(world.clock)
    home.mkdir(parents=True)
    try:
        await fresh.open()
        await _smuggle(world, fresh, action)
        for number, root in enumerate(world.roots):
            path = _export(home / f"{number}.{action.format}", world.events_of(root), action.format)
            await _import(world, fresh, root, path)
        await _check_same(world, fresh)
        await fresh.close()
    finally:
        shutil.rmtree(home)


def _export(path: Path, items: Sequence[Recorded], format_: str) -> Path | list[Envelope]:
    events = [item.event for item in items]
    if format_ == "direct":
        return events
    with open_log(path, format_) as log:
        log.write(events)
    return path


async def _import(world: World, fresh: Store, root: Stream, source: Path | list[Envelope]) -> None:
    for again in (False, True):
        events = read_log(source) if isinstance(source, Path) else iter(source)
        adopted = await fresh.ledger.adopt(checked(events, world.registry))
        count = len(world.events_of(root))
        expected = (0, count) if again else (count, 0)
        require(
            (adopted.written, adopted.present) == expected,
            f"importing {root.stream_id} {'again ' if again else ''}wrote {adopted.written} of {count} events",
        )


async def _check_same(world: World, fresh: Store) -> None:
    replayer = world.replayer(fresh.projections, fresh.ledger)
    snapshots = world.snapshots(fresh.projections, fresh.ledger)
    projector = Projector(fresh.ledger, fresh.projections, fresh.outbox, world.registry, snapshots=snapshots)
    await projector.catch_up()
    verifier = Verifier(fresh.ledger, fresh.projections, replayer, PROJECTOR)
    for root in world.roots:
        here, there = await world.replayer().replay(root), await replayer.replay(root)
        require(here.checksum() == there.checksum(), f"{root.stream_id} means something else after import")
        found = await verifier.verify(root)
        require(found.ok, f"{root.stream_id} does not verify after import: {found.problems[:1]}")
        heads = [await ledger.heads(root=root) for ledger in (world.store.ledger, fresh.ledger)]
        require(heads[0] == heads[1], f"the heads of {root.stream_id} differ after import")
    require(not (await verifier.verify_ledger()).problems, "the ledger does not verify after import")
    await _check_retries(world, fresh)


async def _check_retries(world: World, fresh: Store) -> None:
    """A retry that arrives at the new ledger finds its first try there."""
    for append in world.sent[-3:]:
        verdict = world.model.judge(append.batches)
        if verdict.answer == "stored":
            events = await fresh.ledger.append(append.batches)
            there = [world.log[position - 1].event for position in verdict.positions]
            require(list(events) == there, f"a retry to {append.stream.stream_id} is not recognised after import")
    require(await fresh.ledger.position() == len(world.log), "a retry was written again after import")


async def _smuggle(world: World, fresh: Store, action: Transfer) -> None:
    """A log that was changed on the way is refused whole."""
    root = world.roots[action.pick % len(world.roots)]
    events = [item.event for item in world.events_of(root)]
    chained = [number for number, event in enumerate(events) if event.chain_hash is not None]
    if len(chained) < 2:  # a gap needs an event on either side
        return
    place = chained[action.pick % (len(chained) - 1)]
    event = events[place]
    changed = msgspec.structs.replace(event, payload={**event.payload, "smuggled": True})
    if action.smuggle == "chain":
        changed = msgspec.structs.replace(changed, envelope_checksum=checksum_of(record_of(changed)))
    events[place : place + 1] = [] if action.smuggle == "gap" else [changed]
    try:
        await fresh.ledger.adopt(_breaking(events[:place]) if action.smuggle == "broken" else events)
    except (Corruption, Conflict, InvalidEvent, Unavailable) as error:
        world.note(str(error))
    else:
        require(False, f"a log with a changed {action.smuggle} was imported")
    require(await fresh.ledger.position() == 0, "a refused import has left something behind")


def _breaking(events: Sequence[Envelope]) -> Iterator[Envelope]:
    """A source that fails before its end."""
    yield from events
    raise BROKEN
