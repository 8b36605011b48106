"""Duties: what one server does for all servers of an installation.

Each duty has a leader of its own. A home without a shared ledger has one server, which its presence sees to; it leads
in memory, without a write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets

from noetl.adapters.memory.leases import MemoryLeases
from noetl.errors import NoetlError, NotFound
from noetl.observe import metrics
from noetl.ports.leases import Lease, Leases
from noetl.runtime.clock import MonotonicClock
from noetl.runtime.control import COMMANDS
from noetl.runtime.home import Home
from noetl.runtime.leader import LEADER_SECONDS, Leader, Term
from noetl.runtime.process import process_name
from noetl.runtime.remote.terms import terms_of
from noetl.runtime.retention import keep_forgetting
from noetl.runtime.service import Services

__all__ = ["Reaping", "serve_duties"]

_NAMED = 4  # tenant, organisation, execution, command

_log = logging.getLogger("noetl.duties")


async def serve_duties(services: Services) -> None:
    """Contend for every duty, and do those that this process leads, until cancelled; then others may at once.

    What is in its own home each server looks after itself.
    """
    settings, clock = services.settings, MonotonicClock()
    shared = settings.ledger.url is not None
    leases: Leases = services.embedded.leases if shared else MemoryLeases(clock)
    seconds = min(LEADER_SECONDS, settings.server.lease)
    owner = f"{process_name('server')}/{secrets.token_hex(4)}"  # numbers of processes come again

    async def schedule(term: Term) -> None:
        from noetl.runtime.schedules.service import scheduler_of

        await scheduler_of(services).serve(term)

    async def archive(term: Term) -> None:
        from noetl.runtime.archiving import open_archiver
        from noetl.runtime.archiving.sweep import Following

        home = services.embedded.home or Home(services.place.home)
        archiver = await open_archiver(services.embedded, home, settings, services.project)
        await Following(services.embedded, archiver).serve(term)

    async def retain(term: Term) -> None:
        from noetl.runtime.forgetting import open_retention

        retention = open_retention(services.embedded, settings)
        await retention.serve(term, services.embedded.clock, settings.retention.every or 0.0)

    duties = {"scheduler": schedule}
    if settings.archive.on_completion:
        duties["archiver"] = archive
    if services.place.lease_seconds is not None:
        duties["reaper"] = Reaping(services, services.embedded.leases, services.place.lease_seconds).serve
    if settings.retention.every is not None:
        duties["retention"] = retain
    async with asyncio.TaskGroup() as group:
        for what, work in duties.items():
            group.create_task(Leader(leases, clock, what, owner, seconds=seconds).lead(work))
        if settings.server.retention is not None:
            group.create_task(keep_forgetting(services.place.home, settings.server.retention, services.embedded.clock))


class Reaping:
    """Finds commands that a worker of another process was not heard of for too long, whichever organisation's."""

    def __init__(self, services: Services, leases: Leases, lease_seconds: float) -> None:
        self._services = services
        self._leases = leases
        self._seconds = terms_of("", "", "", lease_seconds).reap_seconds
        self._owed: list[Lease] = []
        """What the leases have handed out, and no log has yet."""

    async def serve(self, term: Term) -> None:
        """Reap until cancelled, or until others do. Raises LeaseLost."""
        while True:
            await self._services.embedded.clock.sleep(self._seconds)
            await term.check()
            await self.reap()

    async def reap(self) -> int:
        """Have what has lapsed delivered again; how many commands that were. One question for all organisations."""
        found = 0
        self._owed += await self._leases.expire(COMMANDS)
        for lease in list(self._owed):
            try:
                found += await self._abandon(lease)
            except NoetlError as error:  # one that cannot be written to must not keep the others waiting
                _log.warning("%s is not delivered again yet: %s", lease.name, error)
                continue
            self._owed.remove(lease)
        if found:
            metrics.count("noetl_leases_lapsed_total", amount=found)
        return found

    async def _abandon(self, lease: Lease) -> bool:
        parts = lease.name.removeprefix(COMMANDS).split("/")
        if len(parts) != _NAMED:
            return False  # of a process that works for itself
        tenant_id, organization_id, execution_id, command_id = parts
        service = await self._services.of(tenant_id, organization_id)
        with contextlib.suppress(NotFound):  # its execution was deleted meanwhile
            return await service.desk.abandon(int(execution_id), int(command_id), lease.owner)
        return False
