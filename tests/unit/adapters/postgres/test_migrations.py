"""What a database must be before it is used, and what its tables promise to those who look with SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from noetl.adapters.postgres.archives import PostgresArchives
from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.migrations import known
from noetl.adapters.postgres.outbox import PostgresOutbox
from noetl.adapters.postgres.projections import PostgresProjectionStore
from noetl.adapters.postgres.schedules import PostgresSchedules
from noetl.errors import Corruption, InvalidInput, Unavailable
from noetl.ports.forgetting import Family
from noetl.runtime.clock import SystemClock
from tests.contracts.archives import entry
from tests.contracts.ledger import OTHER_TENANT, write
from tests.contracts.projections import row
from tests.contracts.schedules import schedule
from tests.services.postgres_server import Database as Place
from tests.services.postgres_server import Server
from tests.unit.kernel.drafts import STREAM, draft


@pytest.fixture
async def place(postgres_server: Server, worker_id: str) -> AsyncIterator[Place]:
    """A database that nothing was done to yet."""
    control = postgres_server.database("postgres")
    name = f"{worker_id}_fresh"
    control.query(f"CREATE DATABASE {name} TEMPLATE template0")
    yield replace(control, name=name)
    control.query(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def fresh(place: Place) -> AsyncIterator[Database]:
    database = Database(place.dsn)
    yield database
    await database.close()


class TestMigrate:
    async def test_a_new_database_is_refused_until_it_is_migrated(self, fresh: Database) -> None:
        with pytest.raises(Unavailable, match=r"no schema of NoETL yet.*noetl db migrate"):
            await fresh.open()
        assert await fresh.migrate() == [migration.name for migration in known()]
        assert await fresh.migrate() == []
        assert (await (await fresh.open()).standing()).current

    async def test_of_several_who_migrate_at_once_one_does(self, place: Place) -> None:
        databases = [Database(place.dsn) for _ in range(4)]
        done = await asyncio.gather(*(database.migrate() for database in databases))
        assert sorted(map(len, done)) == [0, 0, 0, len(known())]
        for database in databases:
            await database.close()

    async def test_a_newer_database_is_refused(self, fresh: Database, place: Place) -> None:
        await fresh.migrate()
        place.query("INSERT INTO noetl.schema_migration VALUES (99, '0099_later.sql', 'x')")
        for use in (fresh.open, fresh.migrate, fresh.standing):
            with pytest.raises(InvalidInput, match=r"made by a newer release.*upgrade noetl"):
                await use()

    async def test_a_migration_that_was_changed_is_found(self, fresh: Database, place: Place) -> None:
        await fresh.migrate()
        place.query("UPDATE noetl.schema_migration SET sha256 = 'x' WHERE number = 2")
        with pytest.raises(Corruption, match="migration 2 differs from the one in this release"):
            await fresh.migrate()

    async def test_an_older_database_is_refused_and_brought_up(
        self, fresh: Database, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("noetl.adapters.postgres.migrations.known", lambda: known()[:-2])
        assert len(await fresh.migrate()) == len(known()) - 2
        monkeypatch.undo()
        with pytest.raises(Unavailable, match="2 migrations are to be done"):
            await fresh.open()
        assert len(await fresh.migrate()) == 2

    async def test_a_schema_of_somebody_elses_is_left_alone(self, fresh: Database, place: Place) -> None:
        place.query("CREATE SCHEMA noetl; CREATE TABLE noetl.event (n int)")
        with pytest.raises(InvalidInput, match="tables that are not this release's"):
            await fresh.migrate()
        assert place.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'noetl'") == [(1,)]

    async def test_a_migration_that_fails_leaves_nothing(self, fresh: Database, place: Place) -> None:
        """Somebody who may not create a schema, for instance; here it is a name that is taken."""
        place.query("CREATE SCHEMA noetl; CREATE TYPE noetl.token AS ENUM ('x')")
        with pytest.raises(Corruption, match="token"):
            await fresh.migrate()
        assert place.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'noetl'") == [(0,)]

    async def test_text_must_be_utf8(self, postgres_server: Server, worker_id: str) -> None:
        control, name = postgres_server.database("postgres"), f"{worker_id}_latin"
        control.query(f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        database = Database(replace(control, name=name).dsn)
        with pytest.raises(InvalidInput, match="keeps text as LATIN1"):
            await database.migrate()
        await database.close()
        control.query(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def filled(postgres_database: Database) -> Database:
    """Events of two tenants, and rows of one."""
    ledger = await PostgresLedger(postgres_database).open()
    payload = {"kind": "noop", "context": {"n": 1}, "nul": "\0"}
    await write(ledger, draft(payload=payload, meta={"catalog_id": 7, "duration_ms": 1500, "worker_id": "w-1"}))
    await write(ledger, draft(tenant_id="globex"), stream=OTHER_TENANT)
    await ledger.close()
    store = PostgresProjectionStore(postgres_database, SystemClock())
    rows = [row("5", surface="commands", command_id=5, step="load", kind="http", status="COMPLETED", attempt=1)]
    rows.append(row("8", surface="stages", stage_id=8, step="score", kind="fanout", status="RUNNING"))
    done = "2026-03-02T08:00:00.000000Z"
    rows.append(row("9", surface="frames", frame_id=9, stage_id=8, status="COMMITTED", completed_at=done))
    await store.save(rows)
    return postgres_database


class TestTablesForEverybody:
    async def test_the_relations_of_the_language_are_there(self, filled: Database) -> None:
        event = await filled.fetch(
            "SELECT execution_id, catalog_id, event_type, node_type, duration, worker_id, context ->> 'n'"
            " FROM event WHERE tenant_id = 'acme'"
        )
        assert event == [(4101, 7, "step.enter", "noop", 1.5, "w-1", "1")]
        command = "SELECT command_id, execution_id, step_name, tool_kind, status, worker_id, attempt FROM command"
        assert await filled.fetch(command) == [(5, 41, "load", "http", "COMPLETED", None, 1)]
        stage = "SELECT stage_id, execution_id, step_name, kind, status FROM stage"
        assert await filled.fetch(stage) == [(8, 41, "score", "fanout", "RUNNING")]
        frame = (
            "SELECT frame_id, stage_id, execution_id, status, row_count, attempts, owner_worker, lease_until FROM frame"
        )
        assert await filled.fetch(frame) == [(9, 8, 41, "COMMITTED", 0, 0, None, None)]
        assert await filled.fetch("SELECT catalog_id, path, version, kind, content, created_at FROM catalog") == []

    async def test_the_log_can_be_divided(self, filled: Database) -> None:
        part = "CREATE TABLE event_log_1000 PARTITION OF event_log FOR VALUES FROM (1000) TO (2000)"
        async with await filled.connect() as connection:
            await connection.execute(part)
            try:
                ledger = await PostgresLedger(filled).open()
                assert len(await ledger.read_all()) == 2
                await ledger.close()
            finally:
                await connection.execute("DROP TABLE event_log_1000")


class TestTenantsSeeTheirOwnRows:
    READABLE = (
        "event_log, event, stream_head, idempotency, catalog, projection, command, stage, frame, snapshot, outbox"
    )
    READABLE += ", lease, schedule, archive_manifest_index, forgotten, forgotten_run"

    @pytest.fixture
    async def roles(self, filled: Database, worker_id: str) -> AsyncIterator[tuple[str, str, str]]:
        """A role of one tenant, a role that acts for many, and a role that nobody has written down."""
        names = (f"{worker_id}_acme", f"{worker_id}_many", f"{worker_id}_stranger")
        async with await filled.connect() as connection:
            for name in names:
                await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
                await connection.execute(f"GRANT USAGE ON SCHEMA noetl TO {name}".encode())
                await connection.execute(f"GRANT SELECT ON {self.READABLE} TO {name}".encode())
            await connection.execute("INSERT INTO tenant_role VALUES (%s, 'acme'), (%s, NULL)", names[:2])
            yield names
            await connection.execute("DELETE FROM tenant_role")
            for name in names:
                await connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())

    async def tenants(
        self, database: Database, role: str, tenant: str | None = None, table: str = "event_log"
    ) -> set[str]:
        async with await database.connect() as connection, connection.transaction():
            await connection.execute(f"SET LOCAL ROLE {role}".encode())
            if tenant is not None:
                await connection.execute("SELECT set_config('noetl.tenant', %s, true)", [tenant])
            rows = await (await connection.execute(f"SELECT tenant_id FROM {table}".encode())).fetchall()
            return {tenant_id for (tenant_id,) in rows}

    async def test_a_role_of_a_tenant_sees_only_its_rows(self, filled: Database, roles: tuple[str, str, str]) -> None:
        acme, _, _ = roles
        for table in ("event_log", "event_log_rest", "event", "stream_head"):
            if table == "event_log_rest":
                async with await filled.connect() as connection:
                    await connection.execute(f"GRANT SELECT ON event_log_rest TO {acme}".encode())
            assert await self.tenants(filled, acme, table=table) == {"acme"}
            assert await self.tenants(filled, acme, tenant="globex", table=table) == {"acme"}
        for table in ("projection", "command", "stage", "frame"):
            assert await self.tenants(filled, acme, table=table) == {"acme"}

    async def test_schedules_are_their_tenants_own(self, filled: Database, roles: tuple[str, str, str]) -> None:
        acme, _, stranger = roles
        schedules = PostgresSchedules(filled)
        for tenant in ("acme", "globex"):
            await schedules.put(schedule(tenant_id=tenant))
        assert await self.tenants(filled, acme, tenant="globex", table="schedule") == {"acme"}
        assert await self.tenants(filled, stranger, tenant="acme", table="schedule") == set()

    async def test_what_is_left_of_forgotten_events_is_their_tenants_own(
        self, filled: Database, roles: tuple[str, str, str]
    ) -> None:
        acme, _, stranger = roles
        ledger, outbox = PostgresLedger(filled), PostgresOutbox(filled)
        await outbox.settle(await ledger.position())
        for root in (STREAM, OTHER_TENANT):
            heads = {root: await ledger.heads(root=root)}
            await ledger.forget(Family(root=root, heads=heads, uri="s3://cold/x/", manifest_sha256="ab" * 32))
        await outbox.close()
        await ledger.close()
        for table in ("forgotten", "forgotten_run"):
            assert await self.tenants(filled, acme, tenant="globex", table=table) == {"acme"}
            assert await self.tenants(filled, stranger, tenant="acme", table=table) == set()

    async def test_archives_are_their_tenants_own(self, filled: Database, roles: tuple[str, str, str]) -> None:
        acme, _, stranger = roles
        for tenant in ("acme", "globex"):
            await PostgresArchives(filled).put(entry(tenant_id=tenant))
        assert await self.tenants(filled, acme, tenant="globex", table="archive_manifest_index") == {"acme"}
        assert await self.tenants(filled, stranger, tenant="acme", table="archive_manifest_index") == set()

    async def test_a_role_that_acts_for_many_sees_one_at_a_time(
        self, filled: Database, roles: tuple[str, str, str]
    ) -> None:
        _, many, _ = roles
        assert await self.tenants(filled, many) == set()
        assert await self.tenants(filled, many, tenant="acme") == {"acme"}
        assert await self.tenants(filled, many, tenant="globex") == {"globex"}
        assert await self.tenants(filled, many, tenant="globex", table="command") == set()

    async def test_a_role_that_is_not_written_down_sees_nothing(
        self, filled: Database, roles: tuple[str, str, str]
    ) -> None:
        *_, stranger = roles
        for tenant in (None, "acme"):
            assert await self.tenants(filled, stranger, tenant=tenant) == set()
            assert await self.tenants(filled, stranger, tenant=tenant, table="command") == set()

    async def test_what_belongs_to_nobody_is_seen_by_nobody(
        self, filled: Database, roles: tuple[str, str, str]
    ) -> None:
        for role in roles:
            async with await filled.connect() as connection, connection.transaction():
                await connection.execute(f"SET LOCAL ROLE {role}".encode())
                assert await (await connection.execute("SELECT * FROM outbox")).fetchall() == []
                assert await (await connection.execute("SELECT * FROM lease")).fetchall() == []

    async def test_a_tenant_that_logs_in_is_known_by_its_name(
        self, postgres_server: Server, filled: Database, roles: tuple[str, str, str]
    ) -> None:
        name = (await filled.fetch("SELECT current_database()"))[0][0]
        place = replace(postgres_server.database(name), user=roles[0], password="x")
        assert place.query("SELECT DISTINCT tenant_id FROM noetl.event") == [("acme",)]
