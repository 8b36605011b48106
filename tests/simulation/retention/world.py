"""What outlives every process: the ledger, the archives, their index, and who knows what may be forgotten."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from noetl.adapters.memory.archives import MemoryArchives
from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.memory.leases import MemoryLeases
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.sqlite.archives import SqliteArchives
from noetl.archive.bundle import Bundle, open_bundle
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.kernel.vocabulary import TERMINAL_TYPES
from noetl.ports.archives import ArchiveIndex
from noetl.ports.forgetting import Family, Forgotten
from noetl.ports.ledger import Ledger
from tests.simulation.retention.plots import Plot, plots_of
from tests.simulation.retention.schedule import Cut, RetentionSchedule
from tests.simulation.runtime.gate import Gate, Killed
from tests.simulation.runtime.schedule import Fail, Place
from tests.simulation.runtime.schedule import Fault as Struck
from tests.simulation.runtime.world import WorldClock
from tests.simulation.stores import Crashed, MemoryStore, SqliteStore, Store

__all__ = ["URL", "RetentionWorld", "WatchedLedger"]

T = TypeVar("T")
URL = "memory://archives"


class RetentionWorld:
    """Everything that outlives a process."""

    def __init__(self, schedule: RetentionSchedule, adapter: str, scratch: Path) -> None:
        self.schedule = schedule
        self.scratch = scratch
        self.chance = random.Random(f"order/{schedule.seed}")
        self.clock = WorldClock()
        self.store: Store = MemoryStore(self.clock) if adapter == "memory" else SqliteStore(self.clock, scratch)
        self.plots: list[Plot] = plots_of(schedule.families, random.Random(f"plots/{schedule.seed}"))
        self.bundles = MemoryObjectStore(now_micros=self.clock.now)
        self.objects = MemoryObjectStore(now_micros=self.clock.now)
        self.leases = MemoryLeases(self.clock)
        self.kv = MemoryKv(self.clock)
        self.index: ArchiveIndex = MemoryArchives()
        self.log: list[Recorded] = []
        self.lake: list[int] = []
        """Positions that the lake has seen, in the order in which it has."""
        self.damaged: set[Stream] = set()
        self.gates: list[Gate] = []
        self.looked: dict[Gate, int] = {}
        """How far rows were when a sweep began, for each that is under way."""
        self.violations: list[str] = []
        self.is_calm = False
        self.gone = self.back = 0
        self._operations: Counter[Place] = Counter()
        self._transactions = 0
        self._cuts = {fault.nth for fault in schedule.faults if isinstance(fault, Cut)}
        self._due: dict[tuple[Place, int], list[Any]] = {}
        for fault in schedule.faults:
            if not isinstance(fault, Cut):
                self._due.setdefault((fault.at, fault.nth), []).append(fault)

    async def open(self) -> None:
        """Begin, with nothing there."""
        await self.store.open()
        self._attach()

    def _attach(self) -> None:
        if isinstance(self.store, SqliteStore):
            assert self.store._database is not None
            self.index = SqliteArchives(self.store._database)

    def blame(self, what: str) -> None:
        """Something that must hold does not."""
        self.violations.append(what)

    # --- Faults, as a gate asks for them

    def strike_at(self, place: Place, _: int) -> list[Struck]:
        """What strikes this operation."""
        self._operations[place] += 1
        number = self._operations[place]
        faults = self._due.pop((place, number), []) if not self.is_calm else []
        for fault in faults:
            if isinstance(fault, Fail) and fault.times > 1:
                once_less = Fail(at=place, nth=number + 1, after=fault.after, full=fault.full, times=fault.times - 1)
                self._due.setdefault((place, number + 1), []).append(once_less)
        return faults

    def acknowledged(self, _: Sequence[Envelope]) -> None:
        """Whoever appends is watched already."""

    async def in_transaction(self, ledger: Ledger, work: Callable[[], Awaitable[T]]) -> T:
        """Forget or recall; perhaps power fails inside, and everybody begins again with what was committed before."""
        self._transactions += 1
        if self.is_calm or self._transactions not in self._cuts:
            return await work()
        for gate in self.gates:
            gate.kill()
        if isinstance(self.store, SqliteStore):
            await _die_inside(self.store, ledger, work)
            self._attach()
        raise Killed

    # --- What is known of the log

    async def observe(self) -> None:
        """Read what is new in the log, before anybody can have taken it away again."""
        for item in await self.store.ledger.read_all(after_position=len(self.log), limit=1 << 20):
            if item.position != len(self.log) + 1:
                self.blame(f"position {item.position} follows {len(self.log)}")
            self.log.append(item)

    def items_of(self, *roots: Stream) -> list[Recorded]:
        """What was ever written of some roots, in commit order."""
        return [item for item in self.log if Stream(item.event.tenant_id, root_of(item.event.stream_id)) in roots]

    def has_begun(self, root: Stream) -> bool:
        """Whether there is anything of an execution."""
        return bool(self.items_of(root))

    def has_ended(self, root: Stream) -> bool:
        """Whether an execution has come to its end."""
        return any(item.event.event_type in TERMINAL_TYPES for item in self.items_of(root))

    def is_held(self, root: Stream) -> bool:
        """Whether the last word about an execution was a hold."""
        words = [
            item.event.event_type
            for item in self.log
            if item.event.tenant_id == root.tenant_id and item.event.aggregate_type == "hold"
            if item.event.aggregate_id == root.stream_id.split("/")[1]
        ]
        return words[-1:] == ["hold.placed"]

    def plot_of(self, root: Stream) -> Plot:
        """The family at whose top an execution stands."""
        return next(plot for plot in self.plots if plot.root == root)

    async def bundle(self, uri: str) -> Bundle:
        """A bundle, from a store where nothing goes wrong."""
        return await open_bundle(self.bundles, uri.removeprefix(f"{URL}/").strip("/"))


class WatchedLedger:
    """A ledger, and beside it somebody who knows what may be forgotten and what has to come back."""

    def __init__(self, world: RetentionWorld, inner: Ledger, check: Callable[[Family], Awaitable[None]]) -> None:
        self._world = world
        self._inner = inner
        self._check = check

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Append, and let everybody know."""
        events = await self._inner.append(batches)
        await self._world.observe()
        return events

    async def forget(self, family: Family) -> Sequence[Forgotten]:
        """Forget, if nothing speaks against it."""
        known = await self._inner.forgotten(root=family.root)
        left = await self._world.in_transaction(self._inner, lambda: self._inner.forget(family))
        if not known:
            self._world.gone += 1
            await self._check(family)
        return left

    async def recall(self, family: Stream, envelopes: Iterable[Envelope]) -> int:
        """Recall, and look whether each is where it was."""
        events = await self._world.in_transaction(self._inner, lambda: self._inner.recall(family, envelopes))
        self._world.back += 1
        for member in self._world.plot_of(family).members:
            if list(await self._inner.read_root(member)) != self._world.items_of(member):
                self._world.blame(f"{member.stream_id} came back as something else, or elsewhere")
        return events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def _die_inside(store: SqliteStore, ledger: Any, work: Callable[[], Awaitable[Any]]) -> None:
    """Let a transaction do all its work, and go on from what the disk has of it without its commit."""
    images: list[Path] = []
    write = ledger._write

    async def cut(inner: Callable[[Any], Any], **more: Any) -> Any:
        def begun(connection: Any) -> Any:
            inner(connection)
            images.append(store.image())
            raise Crashed

        return await write(begun, **more)

    ledger._write = cut
    try:
        await work()
    except Crashed:
        await store._continue_from(images[0])
    finally:
        del ledger._write
