"""An effect that is applied once however often it is delivered.

The effect key goes into a table of the same database, in the same transaction as the statements. A second delivery
waits for the first to end: if that committed it finds the key and the result, if not it takes the key itself.
"""

from __future__ import annotations

import re

import msgspec
from psycopg import sql

from noetl.kernel.event import Json
from noetl.tools.postgres.pool import Connection
from noetl.tools.values import BadField

__all__ = ["EffectTable"]

_NAME = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*)?")
# Two that create the same table at once would both fail: the second waits here instead.
_CREATE_LOCK = 0x6E6F65746C


class EffectTable:
    """The table of a task, and the key of this call."""

    def __init__(self, name: str, key: str) -> None:
        if not _NAME.fullmatch(name):
            raise BadField(f"effect_table must be a plain table name, not '{name}'")
        if not key:
            raise BadField("effect_table needs an effect key, and this call has none")
        self._name = name.lower()
        self._table = sql.Identifier(*self._name.split("."))
        self._key = key

    async def claim(self, connection: Connection) -> Json | None:
        """Take the key for this transaction, or return what was recorded when it was first used."""
        found = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", [self._name])
        if (await found.fetchone()) != (True,):
            await self._create(connection)
        taken = await connection.execute(
            sql.SQL("INSERT INTO {} (effect_key) VALUES (%s) ON CONFLICT (effect_key) DO NOTHING").format(self._table),
            [self._key],
        )
        if taken.rowcount == 1:
            return None
        kept = await connection.execute(
            sql.SQL("SELECT result FROM {} WHERE effect_key = %s").format(self._table), [self._key]
        )
        row = await kept.fetchone()
        return row[0] if row and isinstance(row[0], dict) else {}

    async def record(self, connection: Connection, result: Json) -> None:
        """Keep the result beside the key, in whichever JSON type the table has for it."""
        await connection.execute(
            sql.SQL("UPDATE {} SET result = %s WHERE effect_key = %s").format(self._table),
            [msgspec.json.encode(result).decode(), self._key],
        )

    async def _create(self, connection: Connection) -> None:
        """Make the table. Its results are json, not jsonb, which would spell a float of 1e20 as a whole number."""
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATE_LOCK])
        await connection.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (effect_key text PRIMARY KEY, result json,"
                " created_at timestamptz NOT NULL DEFAULT now())"
            ).format(self._table)
        )
