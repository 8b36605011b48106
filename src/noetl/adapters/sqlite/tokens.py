"""Tokens in SQLite."""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from noetl.adapters.sqlite.database import Database
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.ports.tokens import StoredToken, TokenInfo, TokenPage

__all__ = ["SqliteTokens"]

_INFO = TokenInfo.__struct_fields__
_COLUMNS = ", ".join((*_INFO, "sha256"))

# Index token_name, as in every statement that names a tenant.
_IN_FORCE = """
    SELECT 1 FROM token
    WHERE tenant_id = :tenant_id AND name = :name
      AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
"""
_ADD = f"""
    INSERT INTO token ({_COLUMNS})
    VALUES ({", ".join(f":{name}" for name in (*_INFO, "sha256"))})
"""
# The primary key.
_FIND = f"SELECT {_COLUMNS} FROM token WHERE token_id = ?"
_LIST = f"""
    SELECT {_COLUMNS}
    FROM token
    WHERE tenant_id = ? AND (name, created_at, token_id) > (?, ?, ?)
    ORDER BY name, created_at, token_id
    LIMIT ?
"""
_NAMED = f"""
    SELECT {_COLUMNS}
    FROM token
    WHERE tenant_id = :tenant_id AND (token_id = :name OR (name = :name AND revoked_at IS NULL))
    ORDER BY token_id = :name DESC, created_at DESC, token_id DESC
    LIMIT 1
"""
_REVOKE = "UPDATE token SET revoked_at = ? WHERE token_id = ?"
_TOUCH = "UPDATE token SET last_used_on = :day WHERE token_id = :id AND coalesce(last_used_on, '') < :day"


class SqliteTokens:
    """Each token a row."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, token: StoredToken) -> None:
        """Keep a new token."""
        row = {**msgspec.structs.asdict(token.info), "sha256": token.sha256}
        row["roles"] = msgspec.json.encode(token.info.roles).decode()

        def work(connection: sqlite3.Connection) -> None:
            now = format_time(self._clock.now())
            if connection.execute(_IN_FORCE, {**row, "now": now}).fetchone() is not None:
                raise InvalidInput(
                    f"there is a token '{token.info.name}' already",
                    hint="choose another name, or revoke that one first",
                )
            connection.execute(_ADD, row)

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

        def work(connection: sqlite3.Connection) -> TokenInfo:
            row = connection.execute(_NAMED, {"tenant_id": tenant_id, "name": name}).fetchone()
            if row is None:
                raise NotFound(f"there is no token '{name}' in force", hint="noetl token list shows what there is")
            info = _stored(row).info
            if info.revoked_at is None:
                info = msgspec.structs.replace(info, revoked_at=format_time(self._clock.now()))
                connection.execute(_REVOKE, (info.revoked_at, info.token_id))
            return info

        return await self._database.write(work)

    async def touch(self, token_id: str, day: str) -> None:
        """Remember the day of its last use."""
        await self._database.write(lambda connection: connection.execute(_TOUCH, {"day": day, "id": token_id}).rowcount)

    async def _select(self, sql: str, parameters: Any) -> builtins.list[StoredToken]:
        def work(connection: sqlite3.Connection) -> builtins.list[StoredToken]:
            return [_stored(row) for row in connection.execute(sql, parameters)]

        return await self._database.read(work)


def _stored(row: Sequence[Any]) -> StoredToken:
    values = dict(zip((*_INFO, "sha256"), row, strict=True))
    sha256 = values.pop("sha256")
    values["roles"] = tuple(msgspec.json.decode(values["roles"]))
    return StoredToken(info=TokenInfo(**values), sha256=sha256)
