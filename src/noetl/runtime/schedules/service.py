"""Schedules over the services of a process: where their executions are begun, and what can be seen of them."""

from __future__ import annotations

from noetl.errors import NotFound
from noetl.ports.schedules import Schedule
from noetl.runtime.schedules.book import book_of
from noetl.runtime.schedules.firing import Firer
from noetl.runtime.schedules.scheduler import Scheduler
from noetl.runtime.service import Services
from noetl.runtime.service.shapes import ExecuteRequest

__all__ = ["ServiceStarter", "firer_of", "scheduler_of"]


class ServiceStarter:
    """Begins executions for the organisation that a schedule belongs to."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def start(self, schedule: Schedule, key: str) -> int:
        """Begin an execution of its playbook, or find the one that this key has begun."""
        service = await self._services.of(schedule.tenant_id, schedule.organization_id)
        plan = schedule.plan
        asked = ExecuteRequest(
            path=plan.playbook,
            version=plan.version,
            payload=dict(plan.payload),
            idempotency_key=key,
            execution_pool=plan.pool,
        )
        said = await service.execute(asked, f"schedule:{schedule.name}")
        return int(said.execution_id)

    async def is_running(self, schedule: Schedule, execution_id: int) -> bool:
        """Whether an execution has not ended yet."""
        service = await self._services.of(schedule.tenant_id, schedule.organization_id)
        try:
            found = await service.reading.state(execution_id)
        except NotFound:
            return False  # it was deleted meanwhile
        return found.control.ended is None


def firer_of(services: Services) -> Firer:
    """What decides on the times of an installation's schedules."""
    embedded = services.embedded
    book = book_of(embedded, services.settings)
    return Firer(embedded.schedules, book, ServiceStarter(services), embedded.clock)


def scheduler_of(services: Services) -> Scheduler:
    """What looks after all of them."""
    return Scheduler(services.embedded.schedules, firer_of(services), services.embedded.clock)
