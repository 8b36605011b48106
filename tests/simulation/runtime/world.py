"""What is outside of every process: the storage, the clocks, what the tools have done, and the faults to come."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noetl.adapters.memory.catalog import MemoryCatalog
from noetl.adapters.memory.leases import MemoryLeases
from noetl.adapters.sqlite.catalog import SqliteCatalog
from noetl.adapters.sqlite.leases import SqliteLeases
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.streams import execution_of, is_dense
from noetl.kernel.time import parse_time
from noetl.kernel.vocabulary import TERMINAL_TYPES
from noetl.ports.catalog import Catalog
from noetl.ports.leases import Leases
from tests.simulation.runtime.kept import WatchedObjects
from tests.simulation.runtime.schedule import (
    Cancel,
    Crash,
    Delay,
    Fail,
    Fault,
    Pause,
    Place,
    Redeliver,
    Repeat,
    Schedule,
    Start,
    Step,
    Stop,
)
from tests.simulation.stores import MemoryStore, SqliteStore, Store

__all__ = ["TENANT", "Member", "World", "WorldClock", "stable"]

TENANT = "default"
_START = parse_time("2026-03-02T08:00:00Z")
_SECOND = 1_000_000
_RECENT = 300.0
_ENDED = frozenset({"command.completed", "command.failed", "command.cancelled"})


class WorldClock:
    """A clock that goes with the run's time, until somebody sets it."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> int:
        """Microseconds since 1970, as this clock sees it."""
        return _START + round((asyncio.get_running_loop().time() + self.offset) * _SECOND)

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds, whatever the clock was set to."""
        await asyncio.sleep(seconds)


class Member:
    """One execution of the tree, as its events tell it."""

    def __init__(self, execution_id: int, parent: int | None) -> None:
        self.execution_id = execution_id
        self.parent = parent
        self.status: str | None = None
        self.open: set[int] = set()
        """Commands in flight."""

    def observe(self, event: Envelope) -> None:
        if event.event_type == "command.issued":
            self.open.add(event.event_id)
        elif event.event_type in _ENDED:
            self.open.discard(event.command_id or 0)
        elif event.event_type in TERMINAL_TYPES:
            self.status = TERMINAL_TYPES[event.event_type]


class World:
    """Everything that outlives a process."""

    def __init__(self, schedule: Schedule, adapter: str, scratch: Path) -> None:
        self.schedule = schedule
        self.chance = random.Random(schedule.order)
        self.has_both = adapter == "memory" and schedule.order % 2 == 1
        """Whether leases and log are in one place, where what is done to both is done at once."""
        self.clock, self.lease_clock = WorldClock(), WorldClock()
        self.store: Store = MemoryStore(self.clock) if adapter == "memory" else SqliteStore(self.clock, scratch)
        self.scratch = scratch
        self.objects = WatchedObjects(self.clock.now, self.blame)
        self._catalog: Catalog = MemoryCatalog(self.clock)
        self._leases: Leases = MemoryLeases(self.lease_clock)
        self.log: list[Recorded] = []
        self.members: dict[int, Member] = {}
        self.violations: list[str] = []
        self.acked: dict[tuple[str, int], str] = {}
        self.calls: Counter[str] = Counter()
        self.first_call: dict[str, float] = {}
        self.strikes: list[float] = []
        self.begun: dict[int, float] = {}
        """When executions were begun, those whose beginning was acknowledged."""
        self.cancelled: list[tuple[int, bool, int, tuple[float, float]]] = []
        """Whom a cancellation has ended, whether with all below, how long the log was when it was done, and when."""
        self.todo: list[Cancel | Redeliver | Start] = []
        self.repeats: list[float] = []
        self.operations: Counter[Place] = Counter()
        """How many there were of each kind."""
        self._due: dict[tuple[Place, int], list[Fault]] = defaultdict(list)
        for fault in schedule.faults:
            self._due[fault.at, fault.nth].append(fault)

    async def open(self) -> None:
        """Open the storage for the first time, or again after a kill."""
        await self.store.open()
        self._attach()

    async def reopen(self, *, kill: bool) -> None:
        """What a process that is alone finds when it starts again. Memory is still there as it was."""
        if isinstance(self.store, SqliteStore):
            await self.store.restart(kill=kill, settled=0)
            self._attach()

    def _attach(self) -> None:
        if isinstance(self.store, SqliteStore):
            assert self.store._database is not None
            self._catalog = SqliteCatalog(self.store._database, self.clock)
            self._leases = SqliteLeases(self.store._database, self.lease_clock)

    @property
    def catalog(self) -> Catalog:
        """The documents that can be called."""
        return self._catalog

    @property
    def leases(self) -> Leases:
        """The leases that outlive a process."""
        return self._leases

    # --- Faults

    def strike_at(self, place: Place, number: int) -> list[Fault]:
        """What strikes this operation. What concerns everybody happens here; the rest is the process's affair."""
        self.operations[place] += 1
        name = (place, self.operations[place])
        if name not in self._due:
            return []
        faults = self._due.pop(name)
        now = asyncio.get_running_loop().time()
        for fault in faults:
            match fault:
                case Step():
                    clock = self.clock if fault.clock == "wall" else self.lease_clock
                    clock.offset += fault.seconds
                    self.strikes.append(now)
                case Cancel() | Redeliver() | Start():
                    self.todo.append(fault)
                case Repeat():
                    self.repeats.append(fault.seconds)
                case Crash() | Stop() | Delay():
                    self.strikes.append(now)
                case Pause():
                    self.strikes += [now, now + fault.seconds]
                case Fail():
                    self.strikes.append(now)
                    if fault.times > 1:
                        self._due[place, name[1] + 1].append(_once_less(fault))
        return faults

    def calm(self) -> None:
        """Nothing more goes wrong."""
        self._due.clear()
        self.todo.clear()
        self.repeats.clear()

    # --- What tools do

    def effect(self, key: str) -> None:
        """A tool has done something that cannot be taken back."""
        now = asyncio.get_running_loop().time()
        self.calls[key] += 1
        self.first_call.setdefault(key, now)

    def hits(self, key: str) -> int:
        """How many faults may have made somebody do this again: those since shortly before it was first done."""
        return sum(moment >= self.first_call[key] - _RECENT for moment in self.strikes)

    # --- What is known of the log

    def acknowledged(self, events: Sequence[Envelope]) -> None:
        """Somebody was told that these are in the log, so they have to stay there."""
        now = asyncio.get_running_loop().time()
        for event in events:
            self.acked[event.stream_id, event.event_id] = event.envelope_checksum
            if event.event_type == "playbook.initialized" and event.execution_id is not None:
                self.begun[event.execution_id] = now

    async def observe(self) -> bool:
        """Read what is new in the log; True if something is."""
        found = False
        while page := await self.store.ledger.read_all(after_position=len(self.log), limit=1000):
            found = True
            self.log += page
            for item in page:
                self._take(item.event)
        return found

    def _take(self, event: Envelope) -> None:
        own = execution_of(event.stream_id)
        if own is None or not is_dense(event.stream_id):
            return
        if event.event_type == "playbook.initialized":
            self.members[own] = Member(own, event.payload.get("parent_execution_id"))
        if own in self.members:
            self.members[own].observe(event)

    def events_of(self, execution_id: int) -> list[Envelope]:
        """The execution's own stream."""
        name = f"execution/{execution_id}"
        return [item.event for item in self.log if item.event.stream_id == name]

    @property
    def root(self) -> Member | None:
        """The execution that was asked for."""
        return next((member for member in self.members.values() if member.parent is None), None)

    @property
    def tops(self) -> list[Member]:
        """Executions that nobody looks after from above: the root, and those whose caller has ended."""
        return [member for member in self.members.values() if self._is_top(member)]

    def _is_top(self, member: Member) -> bool:
        above = self.members.get(member.parent or 0)
        return above is None or above.status is not None

    @property
    def at_rest(self) -> bool:
        """True when there is nothing left to do for anybody."""
        return bool(self.members) and all(member.status and not member.open for member in self.members.values())

    def blame(self, what: str) -> None:
        """Something that must hold does not."""
        self.violations.append(what)


def _once_less(fault: Fail) -> Fail:
    return Fail(at=fault.at, nth=fault.nth + 1, after=fault.after, full=fault.full, times=fault.times - 1)


def stable(value: Any, names: dict[str, str]) -> Any:
    """A value with the ids of executions replaced by their places in the tree, so that two runs can be compared."""
    if isinstance(value, dict):
        return {name: stable(one, names) for name, one in value.items()}
    if isinstance(value, list):
        return [stable(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value
