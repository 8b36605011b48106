"""Two servers over one Postgres archive what ends on either of them, once, whichever of them is still there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from noetl.adapters.postgres.database import Database as Connections
from noetl.archive.bundle import open_bundle
from noetl.archive.bundle.replaying import replay_bundle
from noetl.history import ArchiveSettings
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.replay.service import Cutoff
from noetl.runtime.archiving.places import open_uri
from noetl.runtime.duties import serve_duties
from noetl.settings import DatabaseUrl, Ledger, Settings
from tests.services.postgres import Database, postgres, postgres_server
from tests.unit.server.api import Api, book, open_api, step

__all__ = ["postgres", "postgres_server"]

DEADLINE = 60.0


@contextlib.asynccontextmanager
async def two_servers(place: Path, dsn: str) -> AsyncIterator[tuple[Api, Api]]:
    database = Connections(dsn)
    await database.migrate()
    await database.close()
    archive = ArchiveSettings(url=(place / "cold").as_uri(), on_completion=True)
    settings = Settings(ledger=Ledger(url=DatabaseUrl(dsn)), archive=archive)
    async with open_api(place / "one", settings) as one:
        wallet = place / "two" / "home" / "wallet"
        wallet.parent.mkdir(parents=True)
        wallet.symlink_to(place / "one" / "home" / "wallet")
        async with open_api(place / "two", settings) as two:
            yield one, two


@contextlib.asynccontextmanager
async def on_duty(server: Api) -> AsyncIterator[None]:
    duties = asyncio.create_task(serve_duties(server.services))
    try:
        yield
    finally:
        duties.cancel()
        await asyncio.gather(duties, return_exceptions=True)


async def archived(server: Api, execution_id: str) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE):
        while True:
            for entry in (await server.get("/archives"))["archives"]:
                if entry["execution_id"] == execution_id:
                    found: dict[str, Any] = entry
                    return found
            await asyncio.sleep(0.1)


async def test_what_ends_is_archived_by_whoever_leads(tmp_path: Path, postgres: Database) -> None:
    async with two_servers(tmp_path, postgres.dsn) as (one, two):
        async with on_duty(one):
            first = await archived(two, await one.run(book(step("a"))))
        second = await two.run(book(step("a")))  # nobody is on duty
        async with on_duty(two):
            entry = await archived(one, second)
        bundle = await open_bundle(*await open_uri(entry["uri"], Settings()))
        replayed = await replay_bundle(bundle, default_registry(), Cutoff())
        live = await one.embedded.replayer.replay(Stream("default", execution_stream(int(second))))
        assert (replayed.bundle(), replayed.checksum()) == (live.bundle(), live.checksum())
        assert first["manifest_sha256"] != entry["manifest_sha256"]
        third = await one.run(book(step("a")))
        answers = await asyncio.gather(*(server.post(f"/executions/{third}/archive") for server in (one, two)))
        assert sorted(answer["created"] for answer in answers) == [False, True], "of two who are asked at once one does"
        assert len({answer["manifest_sha256"] for answer in answers}) == 1
