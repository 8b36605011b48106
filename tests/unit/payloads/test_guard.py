"""A collector beside a storer: whatever the order of their steps, what was stored is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.kernel.time import parse_time
from noetl.payloads.guard import GC_LEASE, CollectorGuard
from noetl.payloads.sidecar import is_sidecar
from noetl.payloads.store import PayloadStore
from noetl.ports.objects import ObjectInfo

START = 1_800_000_000_000_000
HOUR = 3600.0
GRACE = 24 * HOUR
CONTENT = b"id,name\n1,ada\n"


class Stopping(MemoryObjectStore):
    """A store whose writers can be stopped before each step."""

    before: Callable[[str], Awaitable[None]] | None = None

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        await self._stop("put over" if overwrite else "put", key)
        return await super().put(key, data, overwrite=overwrite)

    async def head(self, key: str) -> ObjectInfo | None:
        await self._stop("head", key)
        return await super().head(key)

    async def _stop(self, step: str, key: str) -> None:
        if self.before is not None and not is_sidecar(key):
            await self.before(step)


class Collector:
    """What a collector of garbage does with one object that nobody refers to."""

    def __init__(self, objects: Stopping, leases: MemoryLeases, clock: VirtualClock) -> None:
        self._objects, self._leases, self._clock = objects, leases, clock
        self.looked = asyncio.Event()
        self.may_delete = asyncio.Event()

    async def collect(self, key: str) -> bool:
        lease = await self._leases.take(GC_LEASE, "gc-1", seconds=60)
        assert lease is not None
        found = await MemoryObjectStore.head(self._objects, key)
        dead = found is not None and self._clock.now() - parse_time(found.modified_at) >= GRACE * 1_000_000
        self.looked.set()
        await self.may_delete.wait()
        if dead:
            await self._objects.delete(key)
        await self._leases.release(lease)
        return dead


async def turns() -> None:
    """Let everybody who can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def leases(clock: VirtualClock) -> MemoryLeases:
    return MemoryLeases(clock)


@pytest.fixture
def objects(clock: VirtualClock) -> Stopping:
    return Stopping(now_micros=clock.now)


@pytest.fixture
def payloads(objects: Stopping, leases: MemoryLeases, clock: VirtualClock) -> PayloadStore:
    return PayloadStore(objects, "acme", "sales", guard=CollectorGuard(leases, clock, grace_seconds=GRACE))


async def test_what_is_young_is_not_written_again(
    payloads: PayloadStore, objects: Stopping, clock: VirtualClock
) -> None:
    ref = await payloads.store(CONTENT, media_type="text/csv")
    clock.advance(11 * HOUR)
    await payloads.store(CONTENT, media_type="text/csv")
    found = await objects.head(payloads.key(ref))
    assert found is not None
    assert parse_time(found.modified_at) == START


async def test_what_is_old_is_made_young(payloads: PayloadStore, objects: Stopping, clock: VirtualClock) -> None:
    ref = await payloads.store(CONTENT, media_type="text/csv")
    clock.advance(13 * HOUR)
    assert await payloads.store(CONTENT, media_type="text/csv") == ref
    found = await objects.head(payloads.key(ref))
    assert found is not None
    assert parse_time(found.modified_at) == clock.now()


@pytest.mark.parametrize("moment", ["put", "head", "put over"])
async def test_a_collector_that_looked_before_deletes_in_vain(
    payloads: PayloadStore, objects: Stopping, leases: MemoryLeases, clock: VirtualClock, moment: str
) -> None:
    """The collector looks before the storer's step and deletes after it, at each of the steps."""
    ref = await payloads.store(CONTENT, media_type="text/csv")
    key = payloads.key(ref)
    clock.advance(30 * HOUR)
    collector = Collector(objects, leases, clock)
    collecting: list[asyncio.Task[bool]] = []

    async def before(step: str) -> None:
        if step == moment and not collecting:
            collecting.append(asyncio.create_task(collector.collect(key)))
            await collector.looked.wait()

    objects.before = before
    storing = asyncio.create_task(payloads.store(CONTENT, media_type="text/csv"))
    await turns()
    assert not storing.done(), "it waits for the collector"
    collector.may_delete.set()
    assert await collecting[0] is True
    while not storing.done():
        clock.advance(1)
        await turns()
    assert await payloads.fetch(await storing) == CONTENT


async def test_a_collector_that_looks_afterwards_finds_it_young(
    payloads: PayloadStore, objects: Stopping, leases: MemoryLeases, clock: VirtualClock
) -> None:
    ref = await payloads.store(CONTENT, media_type="text/csv")
    clock.advance(30 * HOUR)
    await payloads.store(CONTENT, media_type="text/csv")
    collector = Collector(objects, leases, clock)
    collector.may_delete.set()
    assert await collector.collect(payloads.key(ref)) is False


async def test_a_collector_that_was_killed_is_not_waited_for_long(
    payloads: PayloadStore, leases: MemoryLeases, clock: VirtualClock
) -> None:
    await payloads.store(CONTENT, media_type="text/csv")
    clock.advance(30 * HOUR)
    await leases.take(GC_LEASE, "gc-1", seconds=60)
    storing = asyncio.create_task(payloads.store(CONTENT, media_type="text/csv"))
    waited = 0
    while not storing.done():
        clock.advance(1)
        waited += 1
        await turns()
    assert 55 <= waited <= 65
    assert await payloads.exists(await storing)
