"""The Credentials contract, for each adapter, and what only a file can show."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.credentials import MemoryCredentials, MemoryWallet
from noetl.adapters.postgres.credentials import PostgresCredentials
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.sqlite.credentials import SqliteCredentials
from noetl.adapters.sqlite.database import Database
from noetl.errors import Corruption
from noetl.ports.credentials import Credentials
from noetl.tools.secrets.keys import FixedKeys, Keys
from tests.contracts import credentials
from tests.contracts.credentials import SECRET, CredentialsContract, bearer

keys = credentials.keys


def contents_of(directory: Path) -> list[bytes]:
    return [file.read_bytes() for file in directory.rglob("*") if file.is_file()]


class TestMemoryCredentials(CredentialsContract):
    @pytest.fixture
    def open_store(self, clock: VirtualClock) -> Callable[[Keys], Credentials]:
        wallet = MemoryWallet()
        return lambda keys: MemoryCredentials(clock, keys, wallet)

    async def test_what_it_holds_is_sealed(self, clock: VirtualClock) -> None:
        wallet = MemoryWallet()
        await MemoryCredentials(clock, wallet=wallet).put("acme", bearer())
        assert SECRET not in repr(wallet.records)


class TestSqliteCredentials(CredentialsContract):
    @pytest.fixture
    def open_store(self, database: Database, clock: VirtualClock) -> Callable[[Keys], Credentials]:
        return lambda keys: SqliteCredentials(database, clock, keys)

    async def test_no_file_has_the_secret_or_the_key(
        self, store: Credentials, keys: FixedKeys, database: Database, tmp_path: Path
    ) -> None:
        await store.put("acme", bearer())
        await store.put("acme", bearer(token=SECRET + SECRET))
        await store.rotate()
        database.close()
        planted = [SECRET.encode(), base64.b64encode(SECRET.encode()), SECRET.encode().hex().encode()]
        planted += [key.secret for key in (await keys.load()).keys]
        contents = contents_of(tmp_path)
        assert any(b"crm" in content for content in contents), "we look at the right file"
        assert not [secret for secret in planted if any(secret in content for content in contents)]

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE credential SET ciphertext = zeroblob(length(ciphertext)) WHERE name = 'crm'",
            "UPDATE credential SET wrapped_key = substr(wrapped_key, 1, 40) WHERE name = 'crm'",
            "UPDATE credential SET nonce = zeroblob(0) WHERE name = 'crm'",
            "UPDATE credential SET version = 7 WHERE name = 'crm'",
            "UPDATE credential SET type = 'secret' WHERE name = 'crm'",
            "UPDATE credential SET (wrapped_key, nonce, ciphertext) = "
            "(SELECT wrapped_key, nonce, ciphertext FROM credential WHERE name = 'other') WHERE name = 'crm'",
        ],
    )
    async def test_a_record_that_was_changed_does_not_open(
        self, change: str, store: Credentials, database: Database
    ) -> None:
        await store.put("acme", bearer())
        await store.put("acme", bearer("other"))
        await database.write(lambda connection: connection.execute(change).rowcount)
        with pytest.raises(Corruption, match="credential 'crm': a secret sealed with key kek-"):
            await store.resolve("acme", "crm")
        assert (await store.resolve("acme", "other")).data == {"token": SECRET}

    async def test_a_rotation_that_meets_a_changed_record_changes_nothing(
        self, store: Credentials, database: Database
    ) -> None:
        await store.put("acme", bearer())
        before = await store.put("acme", bearer("other"))
        change = "UPDATE credential SET wrapped_key = zeroblob(60) WHERE name = 'crm'"
        await database.write(lambda connection: connection.execute(change).rowcount)
        with pytest.raises(Corruption, match="credential 'crm'"):
            await store.rotate()
        assert await store.get("acme", "other") == before


class TestPostgresCredentials(CredentialsContract):
    @pytest.fixture
    def open_store(self, postgres_database: Postgres, clock: VirtualClock) -> Callable[[Keys], Credentials]:
        return lambda keys: PostgresCredentials(postgres_database, clock, keys)

    async def test_no_row_has_the_secret_or_the_key(
        self, store: Credentials, keys: FixedKeys, postgres_database: Postgres
    ) -> None:
        await store.put("acme", bearer())
        await store.rotate()
        rows = await postgres_database.fetch("SELECT * FROM credential")
        assert "crm" in str(rows), "we look at the right table"
        planted = [SECRET.encode(), *(key.secret for key in (await keys.load()).keys)]
        contents = [value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row]
        assert not [secret for secret in planted if any(secret in content for content in contents)]

    async def test_a_record_that_was_changed_does_not_open(
        self, store: Credentials, postgres_database: Postgres
    ) -> None:
        await store.put("acme", bearer())
        await store.put("acme", bearer("other"))
        await postgres_database.change("UPDATE credential SET version = 7 WHERE name = 'crm' RETURNING 1")
        with pytest.raises(Corruption, match="credential 'crm': a secret sealed with key kek-"):
            await store.resolve("acme", "crm")
        assert (await store.resolve("acme", "other")).data == {"token": SECRET}
