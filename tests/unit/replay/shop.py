"""A small shop around one ledger in memory: what replay and the projector need, on a clock that stands still."""

from __future__ import annotations

import msgspec

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.memory.outbox import MemoryOutbox
from noetl.adapters.memory.projections import MemoryProjectionStore
from noetl.kernel.event import Draft, Envelope
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.payloads.store import PayloadStore
from noetl.replay.service import Replayer
from noetl.replay.verify import Verifier
from noetl.runtime.projector import PROJECTOR, Projector
from noetl.runtime.snapshots import Snapshots
from noetl.settings import Amount
from noetl.settings import Snapshots as Policy
from tests.scribe import START
from tests.unit.kernel.drafts import STREAM, draft

KEY = b"k" * 32


class Shop:
    """Everything wired by hand, the way `runtime.wiring` does it for SQLite."""

    def __init__(self, *, snapshot_every: int = 1000, key: bytes | None = KEY) -> None:
        self.clock = VirtualClock(START)
        self.registry = default_registry()
        self.ledger = MemoryLedger(self.clock, mac_key=key)
        self.projections = MemoryProjectionStore()
        self.outbox = MemoryOutbox(self.ledger, self.clock)
        self.objects = MemoryObjectStore()
        self.payloads = PayloadStore(self.objects, "default", "sales")
        self.replayer = Replayer(self.ledger, self.projections, self.registry, self.clock, self.payloads)
        self.verifier = Verifier(self.ledger, self.projections, self.replayer, PROJECTOR)
        self.kv = MemoryKv(self.clock)
        policy = Policy(every=Amount(snapshot_every), on_completion=Amount(0), sample=Amount(0), keep=100)
        self.snapshots = Snapshots(self.replayer, self.projections, self.kv, self.clock, policy)
        self.projector = Projector(self.ledger, self.projections, self.outbox, self.registry, snapshots=self.snapshots)

    async def write(self, *drafts: Draft, stream: Stream = STREAM) -> list[Envelope]:
        """One append, a second after the last."""
        self.clock.advance(1)
        return list(await self.ledger.append([Batch(stream=stream, drafts=drafts)]))

    async def run_steps(self, count: int, *, stream: Stream = STREAM) -> list[Envelope]:
        """An execution that has entered so many steps, an append each."""
        events = await self.write(_begin(stream), stream=stream)
        for number in range(count):
            events += await self.write(_step(stream, number), stream=stream)
        return events


def _begin(stream: Stream) -> Draft:
    number = int(stream.stream_id.split("/")[1])
    return msgspec.structs.replace(
        draft("playbook.initialized", payload={"path": "sales/daily"}), execution_id=number, tenant_id=stream.tenant_id
    )


def _step(stream: Stream, number: int) -> Draft:
    owner = int(stream.stream_id.split("/")[1])
    plain = draft("step.enter", node_name=f"step_{number}", payload={"set": {"ctx.last": number}})
    return msgspec.structs.replace(plain, execution_id=owner, tenant_id=stream.tenant_id)
