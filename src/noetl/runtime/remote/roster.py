"""The roster: which workers there are. It is a view for people; who runs what is decided by leases."""

from __future__ import annotations

import msgspec

from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.ports.kv import Kv
from noetl.runtime.remote.topology import Locality
from noetl.runtime.remote.wire import Hello

__all__ = ["ROSTER_SECONDS", "Pools", "Present", "Roster", "Topology"]

ROSTER_SECONDS = 30.0
"""How often a worker says that it is there; one that has not for three times as long is gone."""
_PREFIX = "worker/"
_UNKNOWN = "-"


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that has said so a moment ago."""

    worker_id: str
    version: str
    pools: tuple[str, ...]
    concurrency: int
    labels: dict[str, str]
    seen_at: str
    locality: Locality = Locality()


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Workers by region, zone and node. What a worker does not say of itself is `-`."""

    regions: dict[str, dict[str, dict[str, list[Present]]]]


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """Workers by pool; one of several pools is in each of them."""

    pools: dict[str, list[Present]]


class Roster:
    """Who is there, in the values that processes share: every server of an installation knows the same."""

    def __init__(self, kv: Kv, clock: Clock) -> None:
        self._kv = kv
        self._clock = clock

    async def note(self, hello: Hello) -> None:
        """A worker is there."""
        said = Present(
            worker_id=hello.worker_id,
            version=hello.version,
            pools=hello.pools,
            concurrency=hello.concurrency,
            labels=hello.labels,
            locality=hello.locality,
            seen_at=format_time(self._clock.now()),
        )
        await self._kv.put(_PREFIX + hello.worker_id, msgspec.json.encode(said), seconds=3 * ROSTER_SECONDS)

    async def remove(self, worker_id: str) -> None:
        """A worker has gone."""
        await self._kv.delete(_PREFIX + worker_id)

    async def workers(self) -> list[Present]:
        """Who is there."""
        entries = await self._kv.list(_PREFIX)
        return [msgspec.json.decode(one.value, type=Present) for one in entries if one.value is not None]

    async def pools(self) -> Pools:
        """Who is there, by pool."""
        found: dict[str, list[Present]] = {}
        for worker in await self.workers():
            for pool in worker.pools:
                found.setdefault(pool, []).append(worker)
        return Pools(pools=found)

    async def topology(self) -> Topology:
        """Who is there, by place."""
        found: dict[str, dict[str, dict[str, list[Present]]]] = {}
        for worker in await self.workers():
            place = worker.locality
            zones = found.setdefault(place.region or _UNKNOWN, {})
            zones.setdefault(place.zone or _UNKNOWN, {}).setdefault(place.node or _UNKNOWN, []).append(worker)
        return Topology(regions=found)
