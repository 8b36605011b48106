"""Tokens in Postgres."""

from __future__ import annotations

import builtins
from typing import Any

import msgspec

from noetl.adapters.postgres.database import Connection, Database, Parameters, Row
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.ports.tokens import StoredToken, TokenInfo, TokenPage

__all__ = ["PostgresTokens"]

_INFO = TokenInfo.__struct_fields__
_COLUMNS = ", ".join((*_INFO, "sha256"))

# A name is in force once in a tenant, so whoever makes or ends one waits for another who does.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('token/' || %(tenant_id)s || '/' || %(name)s, 0))"
# Index token_name, as in every statement that names a tenant.
_IN_FORCE = """
    SELECT 1 FROM token
    WHERE tenant_id = %(tenant_id)s AND name = %(name)s
      AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > %(now)s)
"""
_ADD = f"""
    INSERT INTO token ({_COLUMNS})
    VALUES ({", ".join(f"%({name})s" for name in (*_INFO, "sha256"))})
"""
# The primary key.
_FIND = f"SELECT {_COLUMNS} FROM token WHERE token_id = %s"
_LIST = f"""
    SELECT {_COLUMNS}
    FROM token
    WHERE tenant_id = %s AND (name, created_at, token_id) > (%s, %s, %s)
    ORDER BY name, created_at, token_id
    LIMIT %s
"""
_NAMED = f"""
    SELECT {_COLUMNS}
    FROM token
    WHERE tenant_id = %(tenant_id)s AND (token_id = %(name)s OR (name = %(name)s AND revoked_at IS NULL))
    ORDER BY token_id = %(name)s DESC, created_at DESC, token_id DESC
    LIMIT 1
"""
_REVOKE = "UPDATE token SET revoked_at = %s WHERE token_id = %s"
_TOUCH = """
    UPDATE token SET last_used_on = %(day)s
    WHERE token_id = %(id)s AND coalesce(last_used_on, '') < %(day)s
    RETURNING 1
"""


class PostgresTokens:
    """Each token a row."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, token: StoredToken) -> None:
        """Keep a new token."""
        row: dict[str, Any] = {**msgspec.structs.asdict(token.info), "sha256": token.sha256}
        row["roles"] = msgspec.json.encode(token.info.roles).decode()

        async def work(connection: Connection) -> None:
            await connection.execute(_TURN, row)
            now = {"now": format_time(self._clock.now())}
            if await (await connection.execute(_IN_FORCE, row | now)).fetchone() is not None:
                raise InvalidInput(
                    f"there is a token '{token.info.name}' already",
                    hint="choose another name, or revoke that one first",
                )
            await connection.execute(_ADD.encode(), row)

        await self._database.write(work)

    async def find(self, token_id: str) -> StoredToken | None:
        """The record of an id."""
        found = await self._select(_FIND, (token_id,))
        return found[0] if found else None

    async def list(self, tenant_id: str, *, cursor: str | None = None, limit: int = 100) -> TokenPage:
        """All there ever were, in order of name and then of time."""
        after = read_cursor(cursor, 3) if cursor else ["", "", ""]
        found = [stored.info for stored in await self._select(_LIST, (tenant_id, *after, limit + 1))]
        more = len(found) > limit
        last = found[limit - 1] if more else None
        next_cursor = write_cursor(last.name, last.created_at, last.token_id) if last else None
        return TokenPage(tokens=found[:limit], next_cursor=next_cursor)

    async def revoke(self, tenant_id: str, name: str) -> TokenInfo:
        """End a token, now and for good."""
        named = {"tenant_id": tenant_id, "name": name}

        async def work(connection: Connection) -> TokenInfo:
            await connection.execute(_TURN, named)
            row = await (await connection.execute(_NAMED.encode(), named)).fetchone()
            if row is None:
                raise NotFound(f"there is no token '{name}' in force", hint="noetl token list shows what there is")
            info = _stored(row).info
            if info.revoked_at is None:
                info = msgspec.structs.replace(info, revoked_at=format_time(self._clock.now()))
                await connection.execute(_REVOKE, (info.revoked_at, info.token_id))
            return info

        return await self._database.write(work)

    async def touch(self, token_id: str, day: str) -> None:
        """Remember the day of its last use."""
        await self._database.change(_TOUCH, {"day": day, "id": token_id}, repeatable=True)

    async def _select(self, sql: str, parameters: Parameters) -> builtins.list[StoredToken]:
        return [_stored(row) for row in await self._database.fetch(sql, parameters)]


def _stored(row: Row) -> StoredToken:
    values = dict(zip((*_INFO, "sha256"), row, strict=True))
    sha256 = values.pop("sha256")
    values["roles"] = tuple(msgspec.json.decode(values["roles"]))
    return StoredToken(info=TokenInfo(**values), sha256=sha256)
