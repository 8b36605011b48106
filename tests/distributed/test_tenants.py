"""Tenants over Postgres: the same walk over the API, and sessions of a role that sees one tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from noetl.adapters.postgres.database import Database as Connections
from noetl.settings import DatabaseUrl, Ledger, Settings
from tests.e2e.strangers import MARK, OTHER, OWNER, Estate, estate_in, twin_of
from tests.e2e.walks import walk
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
