"""What evidence and snapshots promise, over any storage of the log and its rows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import msgspec

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.memory.outbox import MemoryOutbox
from noetl.kernel.event import Draft
from noetl.kernel.stamp import Batch
from noetl.kernel.upcast import default_registry
from noetl.payloads.store import PayloadStore
from noetl.ports.kv import Kv
from noetl.ports.ledger import Ledger
from noetl.ports.projections import ProjectionStore
from noetl.replay.evidence import EvidenceWriter, check_evidence
from noetl.replay.evidence.artefacts import Adapter
from noetl.replay.service import Replayer
from noetl.replay.verify import Verifier
from noetl.runtime.projector import PROJECTOR, Projector
from noetl.runtime.snapshots import Snapshots
from noetl.settings import Amount
from noetl.settings import Snapshots as Policy
from tests.unit.kernel.drafts import STREAM, draft


class Storage(NamedTuple):
    """What a suite is run over."""

    ledger: Ledger
    projections: ProjectionStore
    kv: Kv
    clock: VirtualClock


class House:
    """The services around a storage, with snapshots every ten events and at the end of more than twelve."""

    def __init__(self, storage: Storage, *, sample: int = 1) -> None:
        self.storage = storage
        ledger, projections, kv, clock = storage
        registry = default_registry()
        payloads = PayloadStore(MemoryObjectStore(), "default", "sales")
        policy = Policy(every=Amount(10), on_completion=Amount(12), sample=Amount(sample), keep=2)
        self.replayer = Replayer(ledger, projections, registry, clock, payloads)
        self.snapshots = Snapshots(self.replayer, projections, kv, clock, policy)
        self.projector = Projector(
            ledger, projections, MemoryOutbox(ledger, clock), registry, snapshots=self.snapshots, settles=False
        )
        self.evidence = EvidenceWriter(
            ledger, projections, self.replayer, Verifier(ledger, projections, self.replayer, PROJECTOR), clock,
            adapter=Adapter(name="any", projector=PROJECTOR), version="1",
        )  # fmt: skip

    async def write(self, *drafts: Draft) -> None:
        """One append, a second after the last, and the rows after it."""
        self.storage.clock.advance(1)
        await self.storage.ledger.append([Batch(stream=STREAM, drafts=drafts)])
        await self.projector.catch_up()

    async def kept(self) -> list[int]:
        """Where snapshots are, the newest first."""
        return [one.position for one in await self.storage.projections.snapshots(STREAM, at_or_before=1000)]


class EvidenceContract:
    """Needs a fixture `storage`."""

    async def test_evidence_holds_and_a_row_that_was_changed_is_named(self, storage: Storage, tmp_path: Path) -> None:
        house = House(storage)
        await house.write(draft("playbook.initialized", payload={"path": "sales/daily"}))
        for number in (1, 2, 10, 9, 100):  # which are in another order as text
            await house.write(draft("command.issued", command_id=number, node_name="load"))
        given = await house.evidence.write(STREAM, tmp_path / "sound")
        assert given.ok
        assert check_evidence(tmp_path / "sound").checksum == (await house.replayer.replay(STREAM)).checksum()
        await self._tamper(storage)
        assert not (await house.evidence.write(STREAM, tmp_path / "changed")).parity
        found = [str(problem) for problem in check_evidence(tmp_path / "changed").problems]
        assert 'parity.json, differences[0]: commands row 10, field \'step\': live "lead", replayed "load"' in found

    async def _tamper(self, storage: Storage) -> None:
        rows = [
            msgspec.structs.replace(row, row=row.row.replace(b"load", b"lead")) if row.row_id == "10" else row
            for row in await storage.projections.load(STREAM)
        ]
        at = await storage.projections.checkpoint(PROJECTOR)
        assert await storage.projections.replace(STREAM, rows, at=(PROJECTOR, at))

    async def test_snapshots_are_taken_kept_and_used_by_the_policy(self, storage: Storage) -> None:
        house = House(storage)
        for _ in range(35):
            await house.write(draft())
        assert await house.kept() == [30, 20]
        await house.write(draft("playbook.completed", payload={}))
        assert await house.kept() == [36, 30]
        replayed = await house.replayer.replay(STREAM)
        assert (replayed.events_folded, replayed.no_snapshot) == (0, None)
        assert replayed.checksum() == (await house.replayer.replay(STREAM, snapshots=False)).checksum()
        assert await storage.kv.list("snapshots/") == []

    async def test_two_that_take_the_same_snapshot_leave_one(self, storage: Storage) -> None:
        house, other = House(storage), House(storage)
        for _ in range(12):
            await house.write(draft())
        await storage.projections.drop_snapshots(STREAM, keep=0)
        await asyncio.gather(*(each.snapshots.take(STREAM) for each in (house, other, house, other)))
        assert await house.kept() == [12]

    async def test_a_snapshot_that_is_not_what_the_log_gives_is_not_built_upon(self, storage: Storage) -> None:
        house = House(storage)
        for _ in range(12):
            await house.write(draft())
        [taken] = await storage.projections.snapshots(STREAM, at_or_before=1000)
        await storage.projections.drop_snapshots(STREAM, keep=0)
        await storage.projections.save_snapshot(msgspec.structs.replace(taken, event_count=taken.event_count + 1))
        assert await house.replayer.refute(taken) is not None
        await house.snapshots.take(STREAM)
        assert (await house.replayer.replay(STREAM)).snapshot is not None
        assert await house.kept() == [12, 10]
