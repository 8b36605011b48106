"""The bench of a worker of the pool spark: it runs tasks for Spark, and keeps data stages.

The server has the executions and the logs of stages; their rows go between Spark and the object store, and never over
the server. So both need the same store.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec

from noetl.engine.decide import Report, Suspension
from noetl.errors import InvalidInput, Unavailable
from noetl.payloads.effects import EffectStore
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.ports.clock import Clock
from noetl.ports.objects import ObjectStore
from noetl.runtime.driver import Origin
from noetl.runtime.home import Home
from noetl.runtime.inputs import Fetch
from noetl.runtime.pool import carry_out, keep_stage
from noetl.runtime.remote.client import Hand, RemoteControlPlane
from noetl.runtime.remote.secrets import in_hand
from noetl.runtime.remote.stage_base import RemoteBase, RemoteLog, RowCalls
from noetl.runtime.remote.topology import locality_of, locator
from noetl.runtime.spark import means_of, spark_maker, transfer_maker
from noetl.runtime.stages.host import stage_hosts
from noetl.runtime.stages.placement import why_no_spark
from noetl.runtime.stages.stages import Stages
from noetl.runtime.stores import open_objects
from noetl.runtime.wiring import open_caches
from noetl.runtime.worker import CallPlaybook, Worker
from noetl.settings import Settings
from noetl.tools.base import Tool
from noetl.tools.registry import Registry

__all__ = ["Means", "SparkBench", "check_means", "open_bench"]


class Means(NamedTuple):
    """What is the same for all organisations that a worker works for."""

    home: Home
    settings: Settings
    clock: Clock
    control: RemoteControlPlane
    worker_id: str
    make_registry: Callable[[dict[str, Callable[[], Tool]]], Registry]
    make_worker: Callable[[Registry, EffectStore | None, CallPlaybook], Worker]


class _Stock(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    home: Home | None
    tiers: PayloadTiers
    results: ResultStore


class _Place(NamedTuple):
    """What there is for the commands of one organisation."""

    worker: Worker
    stages: Stages
    base: RemoteBase


def check_means(*, is_same_store: bool) -> None:
    """Raises InvalidInput and Unavailable for a machine that cannot run what the pool spark gets."""
    if not is_same_store:
        raise InvalidInput(
            "a worker of the pool spark has to keep payloads where its server does, and this one keeps them elsewhere",
            hint="give both the same payloads.url; on one machine --home of the server does as well",
        )
    if (reason := why_no_spark()) is not None:
        raise Unavailable(f"a worker of the pool spark needs Spark: {reason}")


@contextlib.asynccontextmanager
async def open_bench(means: Means) -> AsyncIterator[SparkBench]:
    """A bench; what it has made is let go of at the end."""
    async with contextlib.AsyncExitStack() as opened:
        settings = means.settings
        objects = await open_objects(means.home, settings)
        payloads = PayloadStore(objects, settings.tenant.id, settings.tenant.project)
        caches = await open_caches(means.home, settings, means.clock, opened)
        bench = SparkBench(means, objects, payloads, PayloadTiers(payloads, caches))
        opened.push_async_callback(bench.close)
        yield bench


class SparkBench:
    """Keeps apart what belongs to different organisations: their bytes, and the tools that read these."""

    def __init__(self, means: Means, objects: ObjectStore, payloads: PayloadStore, tiers: PayloadTiers) -> None:
        self._means = means
        self._objects = objects
        self._payloads = payloads
        self._tiers = tiers
        self._places: dict[tuple[str, str, str], _Place] = {}

    async def carry_out(self, hand: Hand, fetch: Fetch) -> Report | Suspension:
        """What came of a command, also of one that is a data stage."""
        command, work = hand.command, hand.claim.work
        place = self._place(command.tenant_id, command.organization_id, work.project)
        if work.stage is None:
            return await carry_out(hand.claim, fetch, place.worker, self._means.clock)
        with place.base.holding(hand):
            return await keep_stage(hand.claim, fetch, place.stages)

    async def close(self) -> None:
        """Stop what is running."""
        for place in self._places.values():
            await place.stages.close()
            await place.worker.registry.close()

    def _place(self, tenant: str, organization: str, project: str) -> _Place:
        name = (tenant, organization, project)
        if name not in self._places:
            self._places[name] = self._made(tenant, organization, project)
        return self._places[name]

    def _made(self, tenant: str, organization: str, project: str) -> _Place:
        means = self._means
        payloads, tiers = self._payloads.of_tenant(tenant), self._tiers.of_tenant(tenant)
        results = ResultStore(self._objects, payloads, tiers)
        stock = _Stock(settings=means.settings, home=means.home, tiers=tiers, results=results)
        worker = self._worker(stock, Origin(tenant_id=tenant, organization_id=organization, project_id=project))
        base = RemoteBase(
            means.control,
            payloads,
            results,
            locator(locality_of(means.settings.place), tenant, organization, means.worker_id),
        )
        hosts = stage_hosts(worker, stock, RemoteLog(means.control, in_hand), lambda: stages)
        stages = Stages(
            base, means.clock,
            host_for=hosts.host_for, pin=hosts.pin, support_for=hosts.support_for, finish_for=hosts.finish_for,
            open_session=worker.open_session, on_events=lambda _: None,
        )  # fmt: skip
        return _Place(worker, stages, base)

    def _worker(self, stock: _Stock, origin: Origin) -> Worker:
        means = self._means
        scratch = means.home.path / "scratch"

        def http() -> Tool:
            found = registry.find("http")
            assert found is not None, "http is built in"
            return found

        wanted = means_of(stock, origin, scratch, http)
        registry = means.make_registry(
            {"spark": spark_maker(stock, scratch, wanted), "transfer": transfer_maker(wanted)}
        )
        effects = EffectStore(self._objects) if means.settings.effects.barrier else None
        return means.make_worker(registry, effects, RowCalls(means.control).run)
