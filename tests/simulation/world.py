"""A run in progress: the clock, the storage, the actors, and what the model says should be there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.kv import MemoryKv
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Recorded
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.kernel.time import parse_time
from noetl.kernel.upcast import UpcasterRegistry, default_registry
from noetl.ports.ledger import Ledger
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.replay import Replayer, Verifier
from noetl.runtime.projector import PROJECTOR, Projector
from noetl.runtime.snapshots import Snapshots
from noetl.settings import Amount
from noetl.settings import Snapshots as Policy
from tests.simulation.actions import AppendFault, Open
from tests.simulation.faults import FaultyLedger, FaultyProjections, WatchedOutbox
from tests.simulation.model import Model, OutboxModel, fact_of
from tests.simulation.stores import MemoryStore, SqliteStore, Store
from tests.simulation.writers import Append, Writer

__all__ = ["RIVALS", "Adapter", "Violation", "World", "require"]

Adapter = str
RIVALS = 2
_POLICY = Policy(every=Amount(24), on_completion=Amount(0), sample=Amount(0), keep=1000)
_START = parse_time("2026-03-02T08:00:00Z")
_PAGE = 64


class Violation(AssertionError):
    """Something that must hold did not."""


def require(holds: bool, message: str) -> None:
    """Raise Violation unless something holds."""
    if not holds:
        raise Violation(message)


class World:
    """Everything there is in a run. Actions change it; `observe` compares it with the model."""

    def __init__(self, adapter: Adapter, scratch: Path) -> None:
        self.adapter = adapter
        self.scratch = scratch
        self.clock = VirtualClock(_START)
        self.store: Store = MemoryStore(self.clock) if adapter == "memory" else SqliteStore(self.clock, scratch)
        self.registry: UpcasterRegistry = default_registry()
        self.model = Model()
        self.log: list[Recorded] = []
        self.scripts: list[Open] = []
        self.writers: list[Writer] = []
        self.sent: list[Append] = []
        self.network: list[Append] = []
        self.saved: list[list[ProjectionRow]] = []
        self.doctored: dict[str, str] = {}
        self.history: dict[Stream, list[tuple[int, StreamHead]]] = {}
        self.outbox = OutboxModel()
        self._moments = [0]  # where the log ended between two appends: nobody ever sees half of one
        self.trace = hashlib.sha256()
        self._last: dict[Stream, Recorded] = {}
        self._event_ids: set[tuple[Stream, int]] = set()

    async def open(self) -> None:
        """Begin, with nothing there."""
        await self.store.open()

    @property
    def roots(self) -> list[Stream]:
        """The roots that have events, in order of appearance."""
        return list(dict.fromkeys(_root(item) for item in self.log))

    def events_of(self, root: Stream) -> list[Recorded]:
        """What was seen of a root, in commit order."""
        return [item for item in self.log if _root(item) == root]

    def note(self, text: str) -> None:
        """Something that a second run of the same actions must repeat."""
        self.trace.update(text.encode() + b"\n")

    def ledger(self, *, lag: int = 0, page: int = 1000, fault: AppendFault = "none") -> Ledger:
        """The ledger as one actor sees it."""
        if not lag:
            return FaultyLedger(self.store, page=page, fault=fault)
        horizon = max(moment for moment in self._moments if moment <= max(0, len(self.log) - lag))
        return self.ledger_until(horizon, page=page, fault=fault)

    def ledger_until(self, horizon: int, *, page: int, fault: AppendFault = "none") -> Ledger:
        """The ledger as it was when it ended at a position."""
        return FaultyLedger(self.store, history=self.history, horizon=horizon, page=page, fault=fault)

    def projections(self) -> FaultyProjections:
        """The projection store as one actor sees it."""
        return FaultyProjections(self.store.projections, self.saved, self.doctored)

    def replayer(self, projections: ProjectionStore | None = None, ledger: Ledger | None = None) -> Replayer:
        """The shipped replay service on this world's storage."""
        return Replayer(
            ledger or self.ledger(page=7), projections or self.projections(), self.registry, self.clock, None
        )

    def verifier(self, ledger: Ledger | None = None) -> Verifier:
        """The shipped verifier on this world's storage."""
        return Verifier(ledger or self.store.ledger, self.store.projections, self.replayer(), PROJECTOR)

    def projector(self, ledger: Ledger, projections: ProjectionStore) -> Projector:
        """The shipped projector on this world's storage."""
        return Projector(
            ledger,
            projections,
            WatchedOutbox(self.store.outbox, self._settle),
            self.registry,
            snapshots=self.snapshots(projections, ledger),
        )

    def snapshots(self, projections: ProjectionStore, ledger: Ledger) -> Snapshots:
        """The shipped policy of snapshots; all are kept, and what is wrong with one is for a replay to find."""
        return Snapshots(self.replayer(projections, ledger), projections, MemoryKv(self.clock), self.clock, _POLICY)

    async def crash(self) -> None:
        """Kill everything and start again."""
        await self.restart(kill=True)

    async def restart(self, *, kill: bool) -> None:
        """Whatever the processes had in memory is gone; what was committed is not."""
        for writer in self.writers:
            writer.forget()
        await self.store.restart(kill=kill, settled=self.outbox.settled)
        self.note("restart")

    async def observe(self) -> None:
        """Read what is new in the log and hold it against the model: order, content, ids, times, heads, outbox."""
        seen = len(self.log)
        while page := await self.store.ledger.read_all(after_position=len(self.log), limit=_PAGE):
            for item in page:
                self._take(item)
        require(
            len(self.log) == len(self.model.log),
            f"the log has {len(self.log)} events, but {len(self.model.log)} should have landed",
        )
        require(await self.store.ledger.position() == len(self.log), "position() is not the last event's")
        await self._observe_heads(self.log[seen:])
        self._moments.append(len(self.log))
        pending = await self.store.outbox.pending_count()
        expected = len(self.outbox.pending(len(self.log)))
        require(pending == expected, f"the outbox has {pending} rows to tell, it should have {expected}")

    async def close(self) -> None:
        """Let go of the storage."""
        await self.store.close()

    def _settle(self, position: int) -> None:
        self.outbox.settled = max(self.outbox.settled, position)

    def _take(self, item: Recorded) -> None:
        event, place = item.event, len(self.log) + 1
        stream = Stream(event.tenant_id, event.stream_id)
        require(item.position == place, f"position {place} is missing: {item.position} follows {place - 1}")
        require(place <= len(self.model.log), f"event {event.event_id} ({event.event_type}) should not be there")
        expected = self.model.log[place - 1]
        require(fact_of(stream, event) == expected, f"at position {place} should be {expected}, not {event}")
        last = self._last.get(stream)
        if last is not None:
            _check_succession(last, item)
        elif event.chain_hash is not None:
            require(event.stream_version == 1, f"{event.stream_id} begins with version {event.stream_version}")
        name = (_root(item), event.event_id)
        require(name not in self._event_ids, f"two events of {name[0]} have the id {event.event_id}")
        self._event_ids.add(name)
        self._last[stream] = item
        self.log.append(item)
        self.note(f"{item.position} {event.envelope_checksum} {event.chain_hash}")

    async def _observe_heads(self, fresh: Sequence[Recorded]) -> None:
        moved = {Stream(item.event.tenant_id, item.event.stream_id) for item in fresh}
        sealed = {stream for stream in self.model.sealed if stream not in self.history or not self._is_sealed(stream)}
        for stream in sorted(moved | sealed, key=lambda name: (name.tenant_id, name.stream_id)):
            head = await self.store.ledger.head(stream)
            require(head is not None, f"{stream} has no head")
            assert head is not None
            last = self._last.get(stream)
            require(head.count == self.model.counts.get(stream, 0), f"the head of {stream} counts {head.count} events")
            require(head.sealed == (stream in self.model.sealed), f"{stream} is sealed: {head.sealed}")
            require(last is None or head.version == last.event.stream_version, f"the head of {stream} did not move")
            self.history.setdefault(stream, []).append((len(self.log), head))

    def _is_sealed(self, stream: Stream) -> bool:
        return self.history[stream][-1][1].sealed


def _check_succession(last: Recorded, item: Recorded) -> None:
    event = item.event
    if event.chain_hash is not None:
        require(
            event.stream_version == last.event.stream_version + 1,
            f"{event.stream_id}: version {event.stream_version} follows {last.event.stream_version}",
        )
    require(event.event_id > last.event.event_id, f"{event.stream_id}: the ids of events go back at {event.event_id}")
    require(event.ingest_time >= last.event.ingest_time, f"{event.stream_id}: ingest time goes back")


def _root(item: Recorded) -> Stream:
    return Stream(item.event.tenant_id, root_of(item.event.stream_id))
