"""Tenants over Postgres: the same walk over the API, and sessions of a role that sees one tenant."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import psycopg
import pytest

from noetl.adapters.postgres.database import Database as Connections
from noetl.kernel.names import EventSubject
from noetl.settings import DatabaseUrl, Ledger, Settings
from tests.e2e.cli import PROJECT_ROOT
from tests.e2e.strangers import MARK, OTHER, OWNER, Estate, estate_in, twin_of
from tests.e2e.walks import walk
from tests.services.emulator import free_ports, is_listening, wait_for
from tests.services.nats import binary
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]


@pytest.fixture
async def estate(tmp_path: Path, postgres: Database) -> AsyncIterator[Estate]:
    database = Connections(postgres.dsn)
    await database.migrate()
    await database.close()
    settings = Settings(ledger=Ledger(url=DatabaseUrl(postgres.dsn)))
    async with estate_in(tmp_path, settings, lease=30.0) as opened:
        yield opened


async def test_another_tenant_is_told_nothing_on_any_way(estate: Estate, postgres: Database, worker_id: str) -> None:
    """One test, because making all that there is to be seen takes longer than looking for it."""
    before = await estate.belongings(OWNER)
    async with estate.caller(await estate.token(OTHER, "admin")) as stranger:
        assert await walk(estate, stranger) == []
        await twin_of(estate, OTHER[0])
        assert await walk(estate, stranger, has_a_twin=True) == []
    assert await estate.belongings(OWNER) == before
    await estate.embedded.projector.catch_up()

    role = f"{worker_id}_globex"
    postgres.query(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        postgres.query(f"GRANT USAGE ON SCHEMA noetl TO {role}")
        postgres.query(f"GRANT SELECT ON ALL TABLES IN SCHEMA noetl TO {role}")
        postgres.query(f"INSERT INTO noetl.tenant_role VALUES ('{role}', '{OTHER[0]}')")
        own, seen = _seen_by(postgres, None), _seen_by(postgres, role)
    finally:
        postgres.query("DELETE FROM noetl.tenant_role")
        postgres.query(f"DROP OWNED BY {role}")
        postgres.query(f"DROP ROLE {role}")
    told = {name for name, text in own.items() if MARK in text}
    assert told >= {"event_log", "event", "catalog", "projection", "credential", "token", "idempotency"}, told
    assert [name for name, text in seen.items() if MARK in text] == []
    assert [name for name, text in seen.items() if f"{OWNER[0]},{OWNER[1]}" in text] == []
    assert estate.known["execution_id"] in seen["event_log"], "their own of the same id"


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[str]:
    """A server of NATS with the users that the page about tenants shows; its address, without a user."""
    page = (PROJECT_ROOT / "docs" / "how-to" / "tenants.md").read_text(encoding="utf-8")
    users = re.search(r"^authorization \{.*?^\}$", page, re.DOTALL | re.MULTILINE)
    assert users is not None
    port = free_ports(1)[0]
    (tmp_path / "nats.conf").write_text(f'listen: "127.0.0.1:{port}"\n{users[0]}\n')
    environment = {"NOETL_NATS_PASSWORD": "ours", "ACME_NATS_PASSWORD": "theirs"}
    process = subprocess.Popen([binary(), "-c", str(tmp_path / "nats.conf")], env=environment)
    try:
        wait_for(lambda: is_listening(port), "NATS did not start")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def test_a_user_of_nats_hears_the_subjects_of_its_tenant_only(own_nats: str) -> None:
    refused: list[str] = []
    all_told = asyncio.Event()  # each refusal is told by a task of its own, some after the flush

    async def note(error: Exception) -> None:
        refused.append(str(error))
        if len(refused) == 6:
            all_told.set()

    ours = await nats.connect(f"nats://noetl:ours@{own_nats}")
    theirs = await nats.connect(f"nats://acme:theirs@{own_nats}", error_cb=note)
    try:
        own = await theirs.subscribe("noetl.events.acme.>")
        for subject in ("noetl.events.globex.>", "noetl.events.>", ">", "noetl.commands.>", "$JS.API.>"):
            await theirs.subscribe(subject)
        await theirs.flush()
        for tenant in ("globex", "acme"):
            place = EventSubject(tenant=tenant, org="retail", execution=7, shard=3)
            await ours.publish(str(place), tenant.encode())
        await ours.flush()
        assert (await own.next_msg(timeout=10)).data == b"acme"
        await theirs.publish("noetl.commands.shared.7", b"mine")
        await theirs.flush()
        assert own.pending_msgs == 0
        await asyncio.wait_for(all_told.wait(), 30)
        assert len([one for one in refused if "permissions violation for subscription" in one.lower()]) == 5, refused
        assert len([one for one in refused if "permissions violation for publish" in one.lower()]) == 1, refused
    finally:
        await theirs.close()
        await ours.close()


def _seen_by(postgres: Database, role: str | None) -> dict[str, str]:
    """All rows of every relation as text, as a role sees them; None for the service itself."""
    relations = postgres.query(
        "SELECT relname FROM pg_class WHERE relnamespace = 'noetl'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
    )
    found: dict[str, str] = {}
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        if role is not None:
            connection.execute(f"SET ROLE {role}".encode())
        for (name,) in relations:
            rows = connection.execute(f"SELECT one::text FROM noetl.{name} AS one".encode()).fetchall()
            found[str(name)] = "\n".join(row[0] for row in rows)
    return found
