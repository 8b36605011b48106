"""What one server does for all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.errors import NotFound, Unavailable
from noetl.runtime.duties import Reaping, serve_duties
from noetl.runtime.home import Home
from noetl.runtime.service import Services, Workplace, open_services
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings
from tests.scribe import START
from tests.unit.runtime.workshop import as_text, book, step


class Desks:
    """The organisations of an installation, and which commands they have given to others."""

    def __init__(self) -> None:
        self.abandoned: list[tuple[Any, ...]] = []
        self.gone: set[str] = set()
        self.away: set[str] = set()

    async def of(self, tenant_id: str, organization_id: str) -> Any:
        if tenant_id in self.away:
            raise Unavailable(f"{tenant_id} is out of reach")
        desks, name = self, (tenant_id, organization_id)

        class Service:
            desk: Any

        class Desk:
            async def abandon(self, execution_id: int, command_id: int, worker_id: str) -> bool:
                if tenant_id in desks.gone:
                    raise NotFound("it was deleted")
                desks.abandoned.append((*name, execution_id, command_id, worker_id))
                return True

        service = Service()
        service.desk = Desk()
        return service


async def test_lapsed_commands_of_all_organisations_are_delivered_again() -> None:
    clock, desks = VirtualClock(START), Desks()
    leases = MemoryLeases(clock)
    for name in ("command/acme/retail/7/8", "command/other/default/9/10", "command/11/12", "frame/acme/retail/1/2"):
        await leases.take(name, "worker-1", seconds=10)
    reaping = Reaping(desks, leases, 40)  # type: ignore[arg-type]  # all that it asks of services
    assert await reaping.reap() == 0
    clock.advance(10)
    assert await reaping.reap() == 2
    assert desks.abandoned == [("acme", "retail", 7, 8, "worker-1"), ("other", "default", 9, 10, "worker-1")]
    assert await reaping.reap() == 0, "once is enough"


async def test_an_organisation_that_cannot_be_written_to_keeps_no_other_waiting() -> None:
    clock, desks = VirtualClock(START), Desks()
    leases = MemoryLeases(clock)
    for tenant in ("away", "acme", "gone"):
        await leases.take(f"command/{tenant}/retail/7/8", "worker-1", seconds=10)
    clock.advance(10)
    desks.away, desks.gone = {"away"}, {"gone"}
    reaping = Reaping(desks, leases, 40)  # type: ignore[arg-type]  # all that it asks of services
    assert await reaping.reap() == 1
    desks.away = set()
    assert await reaping.reap() == 1, "what the leases have handed out is not forgotten"
    assert [said[0] for said in desks.abandoned] == ["acme", "away"]


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    home, settings = Home(tmp_path / "home"), Settings()
    async with open_embedded(home, settings, create=True) as embedded:
        place = Workplace(home=home.path, directory=tmp_path, slots=1)
        async with open_services(embedded, settings, place) as opened:
            yield opened


async def test_the_server_of_a_home_runs_its_schedules_and_writes_no_lease(services: Services) -> None:
    from noetl.ports.access import ROLES, Caller
    from noetl.ports.schedules import Plan
    from noetl.runtime.schedules.book import book_of

    document = as_text(book(step("start", tool={"kind": "noop"}), path="t"))
    await services.embedded.catalog.register("default", "t", "Playbook", document)
    caller = Caller(principal="user:ada", tenant_id="default", organization_id="default", roles=frozenset(ROLES))
    schedules = book_of(services.embedded, services.settings)
    await schedules.add(caller, "often", Plan(playbook="t", cron="* * * * * *"))
    duties = asyncio.create_task(serve_duties(services))
    try:
        async with asyncio.timeout(20):
            while (await schedules.get(caller, "often")).last is None:  # noqa: ASYNC110 - a record tells nobody
                await asyncio.sleep(0.05)
        assert await services.embedded.leases.holder("leader/scheduler") is None
    finally:
        duties.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await duties
