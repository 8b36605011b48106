"""A server over Postgres that leaves its commands to workers answers as its description says, too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from noetl.adapters.postgres.database import Database as Connections
from noetl.settings import DatabaseUrl, Ledger, Settings
from tests.services.postgres import Database, postgres, postgres_server
from tests.unit.server.promises import EXAMPLES, check_promises, served

__all__ = ["postgres", "postgres_server"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, postgres: Database) -> Iterator[str]:
    async def migrate() -> None:
        database = Connections(postgres.dsn)
        await database.migrate()
        await database.close()

    asyncio.run(migrate())
    settings = Settings(ledger=Ledger(url=DatabaseUrl(postgres.dsn)))
    with served(tmp_path_factory.mktemp("api"), settings, lease=30.0) as found:
        yield found


def test_the_routes_of_workers_and_of_services(url: str) -> None:
    assert check_promises(url, "/api/(commands|worker|credentials/resolve|internal|tenants|events)") > 18


def test_the_others(url: str) -> None:
    others = "(?!/api/(commands|worker|credentials/resolve|internal|tenants|events))"
    assert check_promises(url, others, max(4, EXAMPLES // 3)) > 35
