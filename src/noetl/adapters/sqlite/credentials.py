"""The wallet's records in SQLite. The file alone opens none of them."""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from noetl.adapters.sqlite.database import Database
from noetl.errors import Conflict, InvalidInput, NotFound
from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credential, CredentialInfo, CredentialPage, Rotation
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.tools.secrets.envelope import Sealed, encrypt_text
from noetl.tools.secrets.keys import Key, Keyholder, KeyMissing, KeyRing, Keys
from noetl.tools.secrets.records import Record, rewrap_record, seal_record, unseal_record
from noetl.tools.secrets.types import check_credential

__all__ = ["SqliteCredentials"]

T = TypeVar("T")

_INFO = CredentialInfo.__struct_fields__
_SEALED = ("wrapped_key", "nonce", "ciphertext")
_LISTS = ("tags", "fields")
_COLUMNS = ", ".join((*_INFO, *_SEALED))

_CURRENT = "SELECT version, key_id FROM credential_key ORDER BY version DESC LIMIT 1"
_REGISTER = "INSERT INTO credential_key (version, key_id, created_at) VALUES (?, ?, ?)"
# The primary key, as in every statement below.
_GET = f"SELECT {_COLUMNS} FROM credential WHERE tenant_id = ? AND name = ?"
_PUT = f"""
    INSERT OR REPLACE INTO credential ({_COLUMNS})
    VALUES ({", ".join(f":{name}" for name in (*_INFO, *_SEALED))})
"""
_LIST = f"""
    SELECT {_COLUMNS}
    FROM credential
    WHERE tenant_id = :tenant_id AND name > :after AND (:type IS NULL OR type = :type)
    ORDER BY name
    LIMIT :limit
"""
_ALL = f"SELECT {_COLUMNS} FROM credential"
_REWRAP = """
    UPDATE credential SET key_id = :key_id, wrapped_key = :wrapped_key
    WHERE tenant_id = :tenant_id AND name = :name
"""
_REMOVE = "DELETE FROM credential WHERE tenant_id = ? AND name = ?"


class _Rotated(Exception):
    """The current key has changed since the writer looked."""


class SqliteCredentials:
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

        def work(connection: sqlite3.Connection) -> int:
            return connection.execute(_REMOVE, (tenant_id, name)).rowcount

        if not await self._database.write(work):
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
        return await self._database.read(lambda connection: _current(connection)[1])

    async def _record(self, tenant_id: str, name: str) -> Record:
        found = await self._select(_GET, (tenant_id, name))
        if not found:
            raise _not_found(name)
        return found[0]

    async def _select(self, sql: str, parameters: Any) -> builtins.list[Record]:
        def work(connection: sqlite3.Connection) -> builtins.list[Record]:
            return [_record(row) for row in connection.execute(sql, parameters)]

        return await self._database.read(work)


def _put(
    connection: sqlite3.Connection, key: Key, tenant_id: str, credential: Credential, now: str, replace: bool
) -> CredentialInfo:
    version, current = _current(connection)
    if current not in (None, key.id):
        raise _Rotated
    row = connection.execute(_GET, (tenant_id, credential.name)).fetchone()
    if row is not None and not replace:
        raise InvalidInput(
            f"there is a credential '{credential.name}' already", hint="choose another name, or add --replace"
        )
    if current is None:
        connection.execute(_REGISTER, (version + 1, key.id, now))
    record = seal_record(key, tenant_id, credential, _record(row).info if row else None, now)
    connection.execute(_PUT, _row(record))
    return record.info


def _rotate(connection: sqlite3.Connection, ring: KeyRing, previous: str, now: str) -> Rotation:
    version, current = _current(connection)
    if current != previous:
        raise Conflict(f"another rotation was faster; the key is {current} now")
    assert ring.newest is not None, "a renewed ring has a newest key"
    records = [_record(row) for row in connection.execute(_ALL)]
    for record in records:
        connection.execute(_REWRAP, _row(rewrap_record(ring, ring.newest, record)))
    connection.execute(_REGISTER, (version + 1, ring.newest.id, now))
    return Rotation(previous_key_id=previous, key_id=ring.newest.id, key_version=version + 1, rewrapped=len(records))


def _current(connection: sqlite3.Connection) -> tuple[int, str | None]:
    row = connection.execute(_CURRENT).fetchone()
    return (row[0], row[1]) if row else (0, None)


def _row(record: Record) -> dict[str, Any]:
    row = msgspec.structs.asdict(record.info) | {name: getattr(record.sealed, name) for name in _SEALED}
    return row | {name: msgspec.json.encode(row[name]).decode() for name in _LISTS}


def _record(row: Sequence[Any]) -> Record:
    values = dict(zip((*_INFO, *_SEALED), row, strict=True))
    values |= {name: tuple(msgspec.json.decode(values[name])) for name in _LISTS}
    sealed = Sealed(key_id=values["key_id"], **{name: values.pop(name) for name in _SEALED})
    return Record(info=CredentialInfo(**values), sealed=sealed)


def _not_found(name: str) -> NotFound:
    return NotFound(f"there is no credential '{name}'", hint="noetl credential list shows what there is")
