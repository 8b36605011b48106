"""A store and a log to collect in: everything in memory, with a clock that moves by itself when somebody waits."""

from __future__ import annotations

import asyncio
from typing import Any

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.sqlite.inventory import Inventory
from noetl.kernel.event import Draft, Json, PayloadRef
from noetl.kernel.names import Home, ResultCoordinates
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream
from noetl.payloads.guard import CollectorGuard
from noetl.payloads.store import PayloadStore, payload_key
from noetl.ports.ledger import Stream
from noetl.runtime.gc.collector import Collector
from noetl.runtime.gc.references import References

NOW = 1_780_000_000_000_000
DAY = 86_400.0
EXECUTION = 286_000_000_000_000_001
HOME = Home(env="dev", region="local", cell="local-a")


class PassingClock(VirtualClock):
    """Whoever waits finds that the time has passed."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.advance(seconds)


class Yard:
    """What a collector works on."""

    def __init__(self) -> None:
        self.clock = PassingClock(NOW)
        self.ledger = MemoryLedger(self.clock)
        self.leases = MemoryLeases(self.clock)
        self.objects = MemoryObjectStore(now_micros=self.clock.now)
        guard = CollectorGuard(self.leases, self.clock, grace_seconds=DAY)
        self.payloads = PayloadStore(self.objects, "acme", "sales", guard=guard)

    async def tell(self, event_type: str, execution_id: int = EXECUTION, **fields: Any) -> None:
        draft = Draft(
            event_type=event_type, tenant_id="acme", organization_id="retail", project_id="sales",
            principal="user:ada", producer="noetl://tenant/acme", execution_id=execution_id, **fields,
        )  # fmt: skip
        stream = Stream("acme", execution_stream(execution_id))
        await self.ledger.append([Batch(stream=stream, drafts=[draft])])

    async def store(self, data: bytes) -> PayloadRef:
        return await self.payloads.store(data, media_type="application/json")

    async def put_result(self, data: bytes = b"[1]", **place: Any) -> ResultCoordinates:
        """A result where its coordinates say, without an event."""
        coordinates = result_of(**place)
        await self.objects.put(coordinates.physical_key(HOME), data)
        return coordinates

    def collector(self, inventory: Inventory, *, grace: float = DAY) -> Collector:
        references = References(self.ledger, inventory)
        return Collector(self.objects, references, inventory, self.leases, self.clock, grace_seconds=grace)

    async def dead(self, *, grace: float = DAY, trace: bool = True) -> dict[str, str]:
        """Why each object is dead that is."""
        with Inventory() as inventory:
            await self.collector(inventory, grace=grace).find(trace=trace)
            return {one.key: one.reason for one in inventory.suspects() if one.kind != "sidecar"}

    async def collect(self, *, grace: float = DAY) -> Collector:
        with Inventory() as inventory:
            collector = self.collector(inventory, grace=grace)
            await collector.find()
            await collector.delete()
            return collector

    async def keys(self) -> set[str]:
        return {info.key async for info in self.objects.list() if not info.key.endswith(".meta.json")}


def result_of(**place: Any) -> ResultCoordinates:
    usual = {"execution_id": EXECUTION, "step": "load", "run": 1, "attempt": 1}
    return ResultCoordinates(tenant="acme", project="sales", **{**usual, **place})


def key_of(ref: PayloadRef) -> str:
    return payload_key("acme", ref.sha256)


def reference_to(coordinates: ResultCoordinates, **more: Any) -> Json:
    uri = coordinates.logical_uri()
    return {
        "result": {"status": "ok", "context": {}, "reference": {"kind": "result_ref", "uri": uri, "ref": uri, **more}}
    }
