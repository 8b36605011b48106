"""Two servers over one Postgres keep a tenant to its limits together."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from noetl.adapters.postgres.database import Database as Connections
from noetl.settings import DatabaseUrl, Ledger, Quotas, Settings
from tests.services.postgres import Database, postgres, postgres_server
from tests.unit.server.api import Api, book, open_api, step

__all__ = ["postgres", "postgres_server"]


@contextlib.asynccontextmanager
async def two_servers(place: Path, dsn: str, quotas: Quotas) -> AsyncIterator[tuple[Api, Api]]:
    database = Connections(dsn)
    await database.migrate()
    await database.close()
    settings = Settings(ledger=Ledger(url=DatabaseUrl(dsn)), quotas=quotas)
    async with open_api(place / "one", settings) as one:
        key = place / "two" / "home" / "wallet"
        key.parent.mkdir(parents=True)
        key.symlink_to(place / "one" / "home" / "wallet")
        async with open_api(place / "two", settings) as two:
            yield one, two


async def asked(servers: tuple[Api, Api], times: int) -> Counter[int]:
    requests = [servers[n % 2].client.post("/api/execute", json={"path": "t"}) for n in range(times)]
    return Counter([answer.status_code for answer in await asyncio.gather(*requests)])


async def test_what_runs_at_once_is_never_more_than_it_may_be(tmp_path: Path, postgres: Database) -> None:
    gate = asyncio.Event()

    async def wait(_: Any) -> Any:
        await gate.wait()
        return {}

    async with two_servers(tmp_path, postgres.dsn, Quotas(running=5)) as servers:
        for server in servers:
            server.body = wait
        await servers[0].register(book(step("a")))
        answers = await asked(servers, 16)
        assert set(answers) <= {200, 429}
        assert 1 <= answers[200] <= 5
        while answers[200] < 5:  # one that was refused because another one was just beginning
            answers += await asked(servers, 1)
        assert await asked(servers, 4) == Counter({429: 4})
        running = (await servers[1].get("/executions", status="RUNNING"))["executions"]
        assert len(running) == 5
        gate.set()
        for one in running:
            await servers[1].ended(one["execution_id"])
        assert (await asked(servers, 1))[200] == 1


async def test_a_minute_has_so_many_starts_on_both(tmp_path: Path, postgres_server: Any, worker_id: str) -> None:
    control = postgres_server.database("postgres")
    name = f"{worker_id}_starts"
    control.query(f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        async with two_servers(tmp_path, postgres_server.database(name).dsn, Quotas(starts_per_minute=6)) as servers:
            await servers[0].register(book(step("a")))
            answers = await asked(servers, 14)
            assert set(answers) <= {200, 429}
            assert 1 <= answers[200] <= 7, "six, and what comes back while they start"
            said = {one["limit"]: one["used"] for one in (await servers[1].get("/tenants/default/quota"))["limits"]}
            assert said["starts_per_minute"] >= answers[200] - 1
    finally:
        control.query(f"DROP DATABASE {name} WITH (FORCE)")
