"""Giving the room back that deleted rows have left in the tables."""

from __future__ import annotations

import psycopg

from noetl.adapters.postgres.database import Connection, Database
from noetl.adapters.postgres.failures import explain

__all__ = ["vacuum"]

_SIZE = """
    SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::BIGINT
    FROM pg_class
    WHERE relnamespace = 'noetl'::REGNAMESPACE AND relkind = 'r'
"""
_TABLES = "event_log, outbox, projection, snapshot, forgotten, forgotten_run"


async def vacuum(database: Database, *, full: bool) -> tuple[int, int]:
    """Have the tables take new rows where others were deleted; their size before and after.

    With `full` the tables are written anew, and the room goes back to the disk: nobody can use them meanwhile.
    """
    try:
        connection = await database.connect()
        try:
            before = await _size(connection)
            await connection.execute(f"VACUUM ({'FULL, ' if full else ''}ANALYZE) {_TABLES}".encode())
            return before, await _size(connection)
        finally:
            await connection.close()
    except psycopg.Error as error:
        raise explain(error, database.address) from error


async def _size(connection: Connection) -> int:
    row = await (await connection.execute(_SIZE)).fetchone()
    return int(row[0]) if row else 0
