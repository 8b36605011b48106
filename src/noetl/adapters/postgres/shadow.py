"""Projections beside the projections: filled unseen, compared with those in use, and put in their place.

The shadow is a schema of its own that stands before the other one in the search path, so that whoever fills it uses the
same statements. What is put in place are its rows, in one transaction, not its tables: views, grants and policies stay
as they are, whoever reads sees all rows of before or all of after, and only what differs is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import msgspec
import psycopg

from noetl.adapters.postgres.database import Connection, Database
from noetl.adapters.postgres.failures import explain
from noetl.adapters.postgres.migrations import SCHEMA
from noetl.adapters.postgres.projections import PostgresProjectionStore
from noetl.errors import Conflict
from noetl.ports.clock import Clock
from noetl.ports.shadows import Decide, Drift, DriftedRow, Finish

__all__ = ["SHADOW", "PostgresShadow", "open_shadow"]

SHADOW = "noetl_rebuild"
_LOCK = 0x6E6F65746C_72  # "noetl" and one for what is locked
_MOST_SHOWN = 100
_KEY = ("surface", "root_number", "root", "tenant_id", "row_id")
_COLUMNS = ", ".join((*_KEY, "version", "row", "fields"))
_SAME = " AND ".join(f"live.{name} = shadow.{name}" for name in _KEY)

_MAKE = f"""
    DROP SCHEMA IF EXISTS {SHADOW} CASCADE;
    CREATE SCHEMA {SHADOW};
    CREATE UNLOGGED TABLE {SHADOW}.projection (LIKE {SCHEMA}.projection INCLUDING ALL);
    CREATE UNLOGGED TABLE {SHADOW}.projection_checkpoint (LIKE {SCHEMA}.projection_checkpoint INCLUDING ALL);
"""
_DROP = f"DROP SCHEMA IF EXISTS {SHADOW} CASCADE"
# Readers go on; whoever saves waits.
_HALT = f"LOCK TABLE {SCHEMA}.projection IN SHARE ROW EXCLUSIVE MODE"
# A root whose rows are not as far as the log is late, unless a projector says that they are: it is not compared.
_COMPARED = f"""
    WITH late AS (
        SELECT root_number, root, tenant_id
        FROM (
            SELECT root_number, root, tenant_id, max(version) AS reached
            FROM {SCHEMA}.projection GROUP BY root_number, root, tenant_id
        ) AS live
        RIGHT JOIN (
            SELECT root_number, root, tenant_id, max(version) AS reached
            FROM {SHADOW}.projection GROUP BY root_number, root, tenant_id
        ) AS shadow USING (root_number, root, tenant_id)
        WHERE coalesce(live.reached, 0) < shadow.reached AND shadow.reached > %s
    ), drifted AS (
        SELECT
            surface, root_number, root, tenant_id, row_id,
            CASE WHEN live.row IS NULL THEN 'missing' WHEN shadow.row IS NULL THEN 'extra' ELSE 'different' END AS what
        FROM {SCHEMA}.projection AS live
        FULL JOIN {SHADOW}.projection AS shadow USING (surface, root_number, root, tenant_id, row_id)
        WHERE (live.row, live.fields) IS DISTINCT FROM (shadow.row, shadow.fields)
    ), wrong AS (
        SELECT drifted.* FROM drifted LEFT JOIN late USING (root_number, root, tenant_id) WHERE late.root IS NULL
    )
    SELECT
        (SELECT count(*) FROM {SHADOW}.projection),
        (SELECT count(*) FROM late),
        (SELECT count(*) FROM wrong),
        coalesce((SELECT jsonb_agg(jsonb_build_array(tenant_id, root, surface, row_id, what)) FROM (
            SELECT * FROM wrong ORDER BY tenant_id, root_number, root, surface, row_id LIMIT {_MOST_SHOWN}
        ) AS first), '[]')
"""
_REMOVE = f"""
    DELETE FROM {SCHEMA}.projection AS live
    WHERE NOT EXISTS (SELECT FROM {SHADOW}.projection AS shadow WHERE {_SAME})
"""
_REPLACE = f"""
    INSERT INTO {SCHEMA}.projection AS live ({_COLUMNS})
    SELECT {_COLUMNS} FROM {SHADOW}.projection
    ON CONFLICT ({", ".join(_KEY)}) DO UPDATE
    SET version = excluded.version, row = excluded.row, fields = excluded.fields
    WHERE (live.version, live.row, live.fields) IS DISTINCT FROM (excluded.version, excluded.row, excluded.fields)
"""
_PASS = f"""
    INSERT INTO {SCHEMA}.projection_checkpoint AS live (projector, position, moved_at)
    SELECT projector, position, moved_at FROM {SHADOW}.projection_checkpoint
    ON CONFLICT (projector) DO UPDATE SET position = excluded.position, moved_at = excluded.moved_at
    WHERE excluded.position > live.position
"""


class PostgresShadow:
    """The tables beside, for one process at a time."""

    def __init__(self, connection: Connection, database: Database, clock: Clock) -> None:
        self._connection = connection
        self._address = database.address
        self.projections = PostgresProjectionStore(database, clock)
        """Where whoever fills them saves rows: the same database, seen through the shadow."""

    async def compare(self, finish: Finish, decide: Decide) -> Drift:
        """Compare while nobody saves; if `decide` says so put the rows in place."""
        with self._explained():
            await self._connection.execute("BEGIN")
            try:
                await self._connection.execute(_HALT)
                claimed = await finish()
                found = await (await self._connection.execute(_COMPARED.encode(), [claimed])).fetchone()
                assert found is not None
                rows, late, wrong, first = found
                drift = Drift(rows=rows, late=late, wrong=wrong, first=msgspec.convert(first, list[DriftedRow]))
                if decide(drift):
                    for statement in (_REMOVE, _REPLACE, _PASS):
                        await self._connection.execute(statement.encode())
                    await self._connection.execute("COMMIT")
                    drift = msgspec.structs.replace(drift, replaced=True)
                else:
                    await self._connection.execute("ROLLBACK")
            except BaseException:
                with contextlib.suppress(psycopg.Error):
                    await self._connection.execute("ROLLBACK")
                raise
        return drift

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, TimeoutError) as error:
            raise explain(error, self._address) from error


@contextlib.asynccontextmanager
async def open_shadow(url: str, clock: Clock, *, patience: float, connections: int) -> AsyncIterator[PostgresShadow]:
    """Empty tables beside, gone at the end. Raises Conflict while another process has some.

    What a killed process has left is taken away by the next.
    """
    database = Database(url, patience=patience, connections=connections, schema=f"{SHADOW}, {SCHEMA}")
    try:
        connection = await database.connect()
    except psycopg.Error as error:
        raise explain(error, database.address) from error
    try:
        held = await (await connection.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])).fetchone()
        if not held or not held[0]:
            raise Conflict("another process is rebuilding the rows of this ledger", hint="wait for it to end")
        await connection.execute(_MAKE.encode())
        try:
            yield PostgresShadow(connection, database, clock)
        finally:
            await database.close()
            with contextlib.suppress(psycopg.Error):
                await connection.execute(_DROP.encode())
    except psycopg.Error as error:
        raise explain(error, database.address) from error
    finally:
        await connection.close()
