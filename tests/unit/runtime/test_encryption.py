"""Encrypting a whole store: all of it, again harmlessly, and no key forgotten too early."""

from __future__ import annotations

from collections.abc import AsyncIterable

import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.encrypted import EncryptedObjectStore
from noetl.errors import InvalidInput, Unavailable
from noetl.runtime.encryption import encrypt_all
from noetl.tools.secrets.keys import FixedKeys


@pytest.fixture
async def inner() -> MemoryObjectStore:
    store = MemoryObjectStore()
    for number in range(5):
        await store.put(f"acme/{number}", b"plain %d" % number)
    return store


async def contents(store: EncryptedObjectStore) -> list[bytes]:
    return [await store.get(info.key) async for info in store.list()]


EXPECTED = [b"plain %d" % number for number in range(5)]


async def test_everything_is_encrypted_once(inner: MemoryObjectStore) -> None:
    store = EncryptedObjectStore(inner, FixedKeys())
    done = await encrypt_all(store)
    assert (done.objects, done.encrypted) == (5, 5)
    assert await contents(store) == EXPECTED
    assert (await encrypt_all(store)).encrypted == 0


async def test_a_rotation_keeps_the_older_keys_until_they_are_retired(inner: MemoryObjectStore) -> None:
    keys = FixedKeys()
    store = EncryptedObjectStore(inner, keys)
    first = await encrypt_all(store)
    second = await encrypt_all(store, rotate=True)
    assert second.key_id != first.key_id
    assert [key.id for key in (await keys.load()).keys] == [first.key_id, second.key_id]
    await encrypt_all(store, retire=True)
    assert [key.id for key in (await keys.load()).keys] == [second.key_id]
    assert await contents(store) == EXPECTED


async def test_one_that_is_cut_off_is_finished_by_the_next() -> None:
    class Failing(MemoryObjectStore):
        left: int | None = None

        async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
            if self.left == 0:
                raise Unavailable("gone")
            self.left = None if self.left is None else self.left - 1
            return await super().put(key, data, overwrite=overwrite)

    failing, keys = Failing(), FixedKeys()
    for number, content in enumerate(EXPECTED):
        await failing.put(f"acme/{number}", content)
    store = EncryptedObjectStore(failing, keys)
    await encrypt_all(store)
    failing.left = 2
    with pytest.raises(Unavailable):
        await encrypt_all(store, rotate=True, retire=True)
    assert len((await keys.load()).keys) == 2, "nothing is forgotten"
    assert await contents(store) == EXPECTED
    failing.left = None
    assert (await encrypt_all(store, retire=True)).encrypted == 3
    assert len((await keys.load()).keys) == 1
    assert await contents(store) == EXPECTED


async def test_a_store_in_plain_is_refused(inner: MemoryObjectStore) -> None:
    with pytest.raises(InvalidInput, match="not encrypted here"):
        await encrypt_all(inner)
