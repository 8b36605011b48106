"""The services of a process: one for each organisation that asks, all over one ledger."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import msgspec

from noetl.errors import NoetlError, Unauthenticated, Unavailable
from noetl.kernel.streams import execution_of
from noetl.replay.shares import projected_to
from noetl.runtime.herald import Herald
from noetl.runtime.incoming import Incoming
from noetl.runtime.ingest import Ingest
from noetl.runtime.levels import Owned
from noetl.runtime.origin import origin_of
from noetl.runtime.process import process_name
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.quotas import Quotas
from noetl.runtime.remote.alone import Left
from noetl.runtime.service.freshness import Freshness
from noetl.runtime.service.service import Service, Workplace, open_service
from noetl.runtime.service.succession import Succession
from noetl.runtime.stages.door import Door
from noetl.runtime.wiring import Embedded
from noetl.settings import Settings

__all__ = ["Services", "open_services"]

_PAGE = 500
_TIDY_SECONDS = 30.0

_log = logging.getLogger("noetl.service")


class Services:
    """Makes a service when somebody of its organisation first asks, and keeps it."""

    def __init__(self, embedded: Embedded, settings: Settings, place: Workplace, freshness: Freshness) -> None:
        self.embedded = embedded
        self.quotas = Quotas(settings.quotas, embedded.kv, embedded.clock, embedded.projections, freshness.now)
        self.settings = settings
        self.place = place
        self.ingest = Ingest(embedded, place.home, self.quotas)
        self.incoming = Incoming(embedded, self.ingest)
        self.herald = Herald()
        """Tells the workers of other processes what is committed here."""
        self._freshness = freshness
        self._services: dict[tuple[str, str], Service] = {}
        self._opening = asyncio.Lock()
        self._opened = contextlib.AsyncExitStack()
        self._closing = False
        """What has kept an execution from being taken up, for now."""

    async def of(self, tenant_id: str, organization_id: str) -> Service:
        """The service of an organisation. Raises Unavailable once this process is going down."""
        found = self._services.get((tenant_id, organization_id))
        return found if found is not None else await self._open(tenant_id, organization_id)

    async def _open(self, tenant_id: str, organization_id: str) -> Service:
        async with self._opening:
            name = (tenant_id, organization_id)
            if name not in self._services:
                if self._closing:
                    raise Unavailable("this server is going down", hint="try again in a moment")
                embedded = self.embedded.of_tenant(tenant_id)
                own = origin_of(self.settings, tenant_id, organization_id)
                origin = msgspec.structs.replace(own, server_url=self.place.server_url)
                self._services[name] = await self._opened.enter_async_context(
                    open_service(embedded, origin, self.place, self._freshness, self.quotas, self.herald.tell)
                )
            return self._services[name]

    @property
    def tells_others(self) -> bool:
        """Whether somebody has to publish what is written here, for workers or projectors to hear of it."""
        return self.place.lease_seconds is not None or self.settings.nats.url is not None

    def door(self, authorization: str) -> Door:
        """Where the stage is kept whose token this is. Raises Unauthenticated."""
        for service in self._services.values():
            stages = service.stages
            if stages is not None and stages.door.admits(authorization):
                return stages.door
        raise Unauthenticated(
            "the token is not that of a stage which is kept here", hint="the stage has ended or moved: drop the work"
        )

    def stages(self) -> list[Owned]:
        """Every data stage that is kept in this process."""
        return [
            Owned(tenant_id, organization_id, stage)
            for (tenant_id, organization_id), service in self._services.items()
            if service.stages is not None
            for stage in service.stages.all_progress()
        ]

    async def project(self) -> int:
        """Bring the rows up to date with the log; the position that all of them have reached."""
        await self._freshness.now()
        return await projected_to(self.embedded.projections, PROJECTOR)

    async def take_up(self) -> int:
        """Go on with everything that a process before this one has left running; how many executions that were.

        What another process is working on stays its own. Raises Unavailable where not all could be taken up.
        """
        await self._freshness.now()
        taken, trouble = 0, None
        async for tenant_id, organization_id, execution_id in self._running():
            try:
                taken += await self._take_up(tenant_id, organization_id, execution_id)
            except Unavailable as error:  # it must not keep the others from it
                trouble = error
        if trouble is not None:
            raise trouble
        return taken

    async def _running(self) -> AsyncIterator[tuple[str, str, int]]:
        """Every execution that has not ended, oldest first: its tenant, its organisation and its id."""
        for status in ("RUNNING", "PENDING"):
            cursor: str | None = None
            while True:
                page = await self.embedded.projections.query(
                    "execution", where={"status": status}, cursor=cursor, limit=_PAGE, newest_first=False
                )
                for item in page.rows:
                    row, execution_id = msgspec.json.decode(item.row), execution_of(item.root.stream_id)
                    if execution_id is not None and "path" in row:
                        yield item.root.tenant_id, row.get("organization_id", "default"), execution_id
                cursor = page.next_cursor
                if cursor is None:
                    break

    async def _take_up(self, tenant_id: str, organization_id: str, execution_id: int) -> bool:
        """One that cannot be taken up must not keep the others from it."""
        try:
            service = await self.of(tenant_id, organization_id)
            return await service.take_up(execution_id)
        except Unavailable:
            raise  # somebody tries again
        except NoetlError as error:
            _log.warning("execution %s cannot be taken up: %s", execution_id, error)
            return False

    async def adopt(self, left: Left) -> bool:
        """Go on with an execution that a local run has left; False if it has ended, or cannot be taken up.

        Raises Unavailable.
        """
        return await self._take_up(left.tenant_id, left.organization_id, left.execution_id)

    async def drain(self, seconds: float) -> None:
        """Accept nothing more, and let what is at work finish, but no longer than this."""
        self._closing = True
        for service in self._services.values():
            service.refuse()
        await asyncio.gather(*(service.drain(seconds) for service in self._services.values()))

    async def tidy(self) -> None:
        """Look after what others may have changed, every now and then, for as long as this runs."""
        while True:
            await self.embedded.clock.sleep(_TIDY_SECONDS)
            for service in list(self._services.values()):
                try:
                    await service.tidy()
                except NoetlError as error:
                    _log.warning("%s", error)

    async def close(self) -> None:
        """Stop every service."""
        self._closing = True
        await self._opened.aclose()
        self._services.clear()


@contextlib.asynccontextmanager
async def open_services(embedded: Embedded, settings: Settings, place: Workplace) -> AsyncIterator[Services]:
    """Services over one ledger, with the rows following it; all is stopped at the end."""
    freshness = Freshness(embedded.projector, embedded.clock)
    services = Services(embedded, settings, place, freshness)
    services.ingest.sweep()
    running = (freshness.follow(), services.tidy(), services.incoming.serve())
    beside = [asyncio.create_task(one) for one in running]
    if place.lease_seconds is not None and settings.nats.url is not None:
        beside.append(asyncio.create_task(services.herald.serve(settings)))
    succession = None
    if place.is_shared:
        succession = Succession(
            embedded.leases, embedded.clock, process_name("server"), take_up=services.take_up, adopt=services.adopt
        )
        beside.append(asyncio.create_task(succession.serve()))
    try:
        async with embedded.snapshots.served() if embedded.snapshots is not None else contextlib.nullcontext():
            yield services
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await services.close()
        if succession is not None:
            with contextlib.suppress(NoetlError):  # then they miss this server after a while
                await succession.leave()
