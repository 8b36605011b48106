"""The wallet's records in Postgres. The database alone opens none of them."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from noetl.adapters.postgres.database import Connection, Database, Parameters, Row
from noetl.errors import Conflict, InvalidInput, NotFound
from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credential, CredentialInfo, CredentialPage, Rotation
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.tools.secrets.envelope import Sealed, encrypt_text
from noetl.tools.secrets.keys import Key, Keyholder, KeyMissing, KeyRing, Keys
from noetl.tools.secrets.records import Record, rewrap_record, seal_record, unseal_record
from noetl.tools.secrets.types import check_credential

__all__ = ["PostgresCredentials"]

T = TypeVar("T")

_INFO = CredentialInfo.__struct_fields__
_SEALED = ("wrapped_key", "nonce", "ciphertext")
_LISTS = ("tags", "fields")
_COLUMNS = ", ".join((*_INFO, *_SEALED))

_CURRENT = "SELECT version, key_id FROM credential_key ORDER BY version DESC LIMIT 1"
_REGISTER = "INSERT INTO credential_key (version, key_id, created_at) VALUES (%s, %s, %s)"
# The primary key, as in every statement below.
_GET = f"SELECT {_COLUMNS} FROM credential WHERE tenant_id = %s AND name = %s"
_PUT = f"""
    INSERT INTO credential ({_COLUMNS})
    VALUES ({", ".join(f"%({name})s" for name in (*_INFO, *_SEALED))})
    ON CONFLICT (tenant_id, name) DO UPDATE
    SET {", ".join(f"{name} = excluded.{name}" for name in (*_INFO[2:], *_SEALED))}
"""
_LIST = f"""
    SELECT {_COLUMNS}
    FROM credential
    WHERE tenant_id = %(tenant_id)s AND name > %(after)s AND (%(type)s::TEXT IS NULL OR type = %(type)s)
    ORDER BY name
    LIMIT %(limit)s
"""
_ALL = f"SELECT {_COLUMNS} FROM credential"
_REWRAP = """
    UPDATE credential SET key_id = %(key_id)s, wrapped_key = %(wrapped_key)s
    WHERE tenant_id = %(tenant_id)s AND name = %(name)s
"""
_REMOVE = "DELETE FROM credential WHERE tenant_id = %s AND name = %s RETURNING 1"
# Records that are stored may do so at once; a rotation waits for them, and those that come after it for the rotation.
_STORING = "SELECT pg_advisory_xact_lock_shared(hashtextextended('credential_key', 0))"
_ROTATING = "SELECT pg_advisory_xact_lock(hashtextextended('credential_key', 0))"
_FIRST = "SELECT pg_advisory_xact_lock(hashtextextended('credential_key/first', 0))"
# Two who store one name follow each other, so that each version is one more than the last.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('credential/' || %s || '/' || %s, 0))"


class _Rotated(Exception):
    """The current key has changed since the writer looked."""


class PostgresCredentials:
    """Records sealed under the keys that `keys` holds."""

    def __init__(self, database: Database, clock: Clock, keys: Keys) -> None:
        self._database = database
        self._clock = clock
        self._holder = Keyholder(keys)

    async def put(self, tenant_id: str, credential: Credential, *, replace: bool = True) -> CredentialInfo:
        """Store a credential as the next version of its name."""
        check_credential(credential)
        now = format_time(self._clock.now())

        async def attempt(registered: str | None) -> CredentialInfo:
            key = await self._holder.key_for_writing(registered)
            return await self._database.write(
                lambda connection: _put(connection, key, tenant_id, credential, now, replace)
            )

        return await self._with_current_key(attempt)

    async def get(self, tenant_id: str, name: str) -> CredentialInfo:
        """Everything but the values."""
        return (await self._record(tenant_id, name)).info

    async def resolve(self, tenant_id: str, name: str) -> Credential:
        """The credential with its values."""

        async def attempt(_: str | None) -> Credential:
            record = await self._record(tenant_id, name)
            return unseal_record(await self._holder.ring_with(record.sealed.key_id), record)

        return await self._with_current_key(attempt)

    async def list(
        self, tenant_id: str, *, kind: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> CredentialPage:
        """What there is, in order of name."""
        after = read_cursor(cursor, 1)[0] if cursor else ""
        row = {"tenant_id": tenant_id, "after": after, "type": kind, "limit": limit + 1}
        found = [record.info for record in await self._select(_LIST, row)]
        more = len(found) > limit
        return CredentialPage(
            credentials=found[:limit], next_cursor=write_cursor(found[limit - 1].name) if more else None
        )

    async def remove(self, tenant_id: str, name: str) -> None:
        """Take a credential away for good."""

        if not await self._database.change(_REMOVE, (tenant_id, name)):
            raise _not_found(name)

    async def rotate(self, *, retire: bool = False) -> Rotation:
        """Wrap every data key with a new key. The new key is on disk before the first record needs it."""
        current = await self._registered()
        if current is None:
            raise InvalidInput("there is no key to rotate: no credential was stored yet")
        ring = await self._holder.renew(current)
        now = format_time(self._clock.now())
        rotation = await self._database.write(lambda connection: _rotate(connection, ring, current, now))
        if retire:
            await self._holder.retire(rotation.key_id)
        return rotation

    async def key_id(self) -> str | None:
        """Which key new records are sealed with."""
        return await self._registered()

    async def encrypter(self) -> Callable[[str], str]:
        """A function that seals a text under the current key."""
        key = await self._with_current_key(self._holder.key_for_writing)
        return lambda text: encrypt_text(key, text)

    async def _with_current_key(self, attempt: Callable[[str | None], Awaitable[T]]) -> T:
        """Try again if a rotation came in between: what the first try has read may be under a key that is gone."""
        while True:
            registered = await self._registered()
            try:
                return await attempt(registered)
            except (_Rotated, KeyMissing):
                if registered == await self._registered():
                    raise

    async def _registered(self) -> str | None:
        rows = await self._database.fetch(_CURRENT)
        return rows[0][1] if rows else None

    async def _record(self, tenant_id: str, name: str) -> Record:
        found = await self._select(_GET, (tenant_id, name))
        if not found:
            raise _not_found(name)
        return found[0]

    async def _select(self, sql: str, parameters: Parameters) -> builtins.list[Record]:
        return [_record(row) for row in await self._database.fetch(sql, parameters)]


async def _put(
    connection: Connection, key: Key, tenant_id: str, credential: Credential, now: str, replace: bool
) -> CredentialInfo:
    await connection.execute(_STORING)
    await connection.execute(_TURN, (tenant_id, credential.name))
    version, current = await _current(connection)
    if current is None:  # the very first, which decides on the key: nobody else may do so at the same time
        await connection.execute(_FIRST)
        version, current = await _current(connection)
    if current not in (None, key.id):
        raise _Rotated
    row = await (await connection.execute(_GET.encode(), (tenant_id, credential.name))).fetchone()
    if row is not None and not replace:
        raise InvalidInput(
            f"there is a credential '{credential.name}' already", hint="choose another name, or add --replace"
        )
    if current is None:
        await connection.execute(_REGISTER, (version + 1, key.id, now))
    record = seal_record(key, tenant_id, credential, _record(row).info if row else None, now)
    await connection.execute(_PUT.encode(), _row(record))
    return record.info


async def _rotate(connection: Connection, ring: KeyRing, previous: str, now: str) -> Rotation:
    await connection.execute(_ROTATING)
    version, current = await _current(connection)
    if current != previous:
        raise Conflict(f"another rotation was faster; the key is {current} now")
    assert ring.newest is not None, "a renewed ring has a newest key"
    records = [_record(row) for row in await (await connection.execute(_ALL.encode())).fetchall()]
    async with connection.cursor() as cursor:
        rewrapped = [_row(rewrap_record(ring, ring.newest, record)) for record in records]
        await cursor.executemany(_REWRAP, rewrapped)
    await connection.execute(_REGISTER, (version + 1, ring.newest.id, now))
    return Rotation(previous_key_id=previous, key_id=ring.newest.id, key_version=version + 1, rewrapped=len(records))


async def _current(connection: Connection) -> tuple[int, str | None]:
    row = await (await connection.execute(_CURRENT)).fetchone()
    return (row[0], row[1]) if row else (0, None)


def _row(record: Record) -> dict[str, Any]:
    row = msgspec.structs.asdict(record.info) | {name: getattr(record.sealed, name) for name in _SEALED}
    return row | {name: msgspec.json.encode(row[name]).decode() for name in _LISTS}


def _record(row: Row) -> Record:
    values = dict(zip((*_INFO, *_SEALED), row, strict=True))
    values |= {name: tuple(msgspec.json.decode(values[name])) for name in _LISTS}
    sealed = Sealed(key_id=values["key_id"], **{name: values.pop(name) for name in _SEALED})
    return Record(info=CredentialInfo(**values), sealed=sealed)


def _not_found(name: str) -> NotFound:
    return NotFound(f"there is no credential '{name}'", hint="noetl credential list shows what there is")
