"""Encrypted objects: nothing to read without the key, and nothing to change unnoticed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.encrypted import EncryptedObjectStore, tenant_of
from noetl.errors import Conflict, IntegrityMismatch, Unavailable
from noetl.payloads.store import PayloadStore
from noetl.tools.secrets.chunks import CHUNK_BYTES, HEADER_BYTES, SEALED_CHUNK_BYTES
from noetl.tools.secrets.keys import FixedKeys, KeyMissing, make_key

KEY = make_key(b"k" * 32)
NAME = "acme/ab/cd/object"
SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 7]


def encrypted(inner: MemoryObjectStore, *keys: object) -> EncryptedObjectStore:
    return EncryptedObjectStore(inner, FixedKeys(keys or (KEY,), place="wallet/payloads.key"))  # type: ignore[arg-type]


async def pieces(content: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


@pytest.mark.parametrize("size", SIZES)
async def test_what_goes_in_comes_out(size: int) -> None:
    inner = MemoryObjectStore()
    store, content = encrypted(inner), os.urandom(size)
    await store.put("acme/whole", content)
    await store.put("acme/streamed", pieces(content, 10_007))
    for key in ("acme/whole", "acme/streamed"):
        assert await store.get(key) == content
        assert b"".join([part async for part in store.stream(key, chunk_bytes=9_973)]) == content
        info = await store.head(key)
        assert info is not None
        assert info.size == size


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SIZES), st.integers(0, 4 * CHUNK_BYTES), st.none() | st.integers(0, 4 * CHUNK_BYTES))
async def test_any_range_is_that_range(size: int, start: int, length: int | None) -> None:
    store, content = encrypted(MemoryObjectStore()), os.urandom(size)
    await store.put(NAME, content)
    expected = content[start:] if length is None else content[start : start + length]
    assert await store.get(NAME, start=start, length=length) == expected


async def test_equal_content_never_looks_alike() -> None:
    inner = MemoryObjectStore()
    store = encrypted(inner)
    await store.put("acme/a", b"planted " * 1000)
    await store.put("acme/b", b"planted " * 1000)
    first, second = await inner.get("acme/a"), await inner.get("acme/b")
    assert first[HEADER_BYTES:] != second[HEADER_BYTES:]
    assert b"planted" not in first + second


async def refused(store: EncryptedObjectStore, name: str = NAME) -> str:
    with pytest.raises(IntegrityMismatch) as caught:
        await store.get(name)
    with pytest.raises(IntegrityMismatch):
        async for _ in store.stream(name):
            pass
    return str(caught.value)


@settings(max_examples=80, deadline=None)
@given(st.integers(min_value=0), st.integers(0, 7))
async def test_any_flipped_bit_is_found(place: int, bit: int) -> None:
    inner = MemoryObjectStore()
    store = encrypted(inner)
    await store.put(NAME, b"x" * (CHUNK_BYTES + 100))
    damaged = bytearray(await inner.get(NAME))
    damaged[place % len(damaged)] ^= 1 << bit
    await inner.put(NAME, bytes(damaged), overwrite=True)
    with pytest.raises((IntegrityMismatch, KeyMissing), match=NAME):
        await store.get(NAME)


@pytest.mark.parametrize(
    "cut", [HEADER_BYTES, HEADER_BYTES + SEALED_CHUNK_BYTES, HEADER_BYTES + SEALED_CHUNK_BYTES + 5]
)
async def test_an_end_that_was_cut_off_is_found(cut: int) -> None:
    inner = MemoryObjectStore()
    store = encrypted(inner)
    await store.put(NAME, b"x" * (2 * CHUNK_BYTES))
    await inner.put(NAME, (await inner.get(NAME))[:cut], overwrite=True)
    assert f"object '{NAME}' is damaged" in await refused(store)
    with pytest.raises(IntegrityMismatch):
        await store.get(NAME, start=2 * CHUNK_BYTES)


async def test_chunks_cannot_change_places() -> None:
    inner = MemoryObjectStore()
    store = encrypted(inner)
    await store.put(NAME, b"a" * CHUNK_BYTES + b"b" * CHUNK_BYTES + b"c")
    sealed = await inner.get(NAME)
    first, second = (sealed[HEADER_BYTES + n * SEALED_CHUNK_BYTES :][:SEALED_CHUNK_BYTES] for n in (0, 1))
    await inner.put(NAME, sealed.replace(first, b"?").replace(second, first).replace(b"?", second), overwrite=True)
    await refused(store)


async def test_an_object_cannot_take_the_name_of_another() -> None:
    inner = MemoryObjectStore()
    store = encrypted(inner)
    await store.put("acme/a", b"content")
    await inner.put("acme/b", await inner.get("acme/a"))
    await refused(store, "acme/b")


async def test_what_nobody_encrypted_is_refused() -> None:
    inner = MemoryObjectStore()
    for content in (b"", b"plain", b"plain" * 100):
        await inner.put(NAME, content, overwrite=True)
        message = await refused(encrypted(inner))
        assert f"object '{NAME}' is not encrypted, but payloads.encrypt is on" in message
        assert "noetl payloads encrypt" in message


async def test_another_key_is_named_and_so_is_the_place() -> None:
    inner = MemoryObjectStore()
    await encrypted(inner).put(NAME, b"content")
    other = make_key(b"o" * 32)
    with pytest.raises(KeyMissing) as caught:
        await encrypted(inner, other).get(NAME)
    message = str(caught.value)
    assert (
        f"object '{NAME}' is encrypted with key {KEY.id}, but wallet/payloads.key holds {other.id} instead" in message
    )
    assert "NOETL_PAYLOAD_KEY" in message


async def test_no_new_key_is_made_beside_objects_of_a_lost_one() -> None:
    inner = MemoryObjectStore()
    await encrypted(inner).put(NAME, b"content")
    lost = EncryptedObjectStore(inner, FixedKeys(place="wallet/payloads.key"))
    with pytest.raises(KeyMissing, match=r"wallet/payloads.key holds no key"):
        await lost.put("acme/new", b"content")


async def test_after_a_rotation_both_generations_are_read() -> None:
    inner = MemoryObjectStore()
    await encrypted(inner).put("acme/old", b"old")
    newer = make_key(b"n" * 32)
    store = encrypted(inner, KEY, newer)
    await store.put("acme/new", b"new")
    assert (await store.get("acme/old"), await store.get("acme/new")) == (b"old", b"new")
    with pytest.raises(KeyMissing):
        await encrypted(inner, KEY).get("acme/new")


async def test_what_is_plain_or_of_an_older_key_is_encrypted_anew() -> None:
    inner, content = MemoryObjectStore(), os.urandom(3 * CHUNK_BYTES)
    await inner.put("acme/plain", content)
    await encrypted(inner).put("acme/old", content)
    store = encrypted(inner, KEY)
    newest = await store.rotate()
    await store.put("acme/new", content)
    assert [await store.reseal(f"acme/{name}") for name in ("plain", "old", "new", "none")] == [
        True,
        True,
        False,
        False,
    ]
    await store.retire()
    for name in ("plain", "old", "new"):
        assert await store.get(f"acme/{name}") == content
    with pytest.raises(KeyMissing, match=newest):
        await encrypted(inner).get("acme/old")


async def test_what_somebody_replaces_meanwhile_stays_theirs() -> None:
    class Meanwhile(MemoryObjectStore):
        async def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
            async for chunk in super().stream(key, chunk_bytes=chunk_bytes):
                yield chunk
            await self.put(key, b"newer", overwrite=True)

    inner = Meanwhile()
    await inner.put(NAME, b"older, and longer")
    with pytest.raises(Conflict, match=f"'{NAME}' has changed"):
        await encrypted(inner).reseal(NAME)
    assert await inner.get(NAME) == b"newer"


async def test_links_are_not_given() -> None:
    from datetime import timedelta

    store = encrypted(MemoryObjectStore())
    with pytest.raises(Unavailable, match="is encrypted"):
        await store.signed_url(NAME, expires_in=timedelta(minutes=1))


def test_tenants_are_told_apart() -> None:
    assert tenant_of("acme/ab/cd/abcd") == "acme"
    assert tenant_of("noetl/env=dev/shard=s0001/tenant=b%20co/project=p/1.bin") == "b%20co"


async def test_the_payload_store_sees_plain_bytes() -> None:
    payloads = PayloadStore(encrypted(MemoryObjectStore()), "acme", "sales")
    ref = await payloads.store(b"content", media_type="text/plain", rows=1)
    assert await payloads.fetch(ref) == b"content"
    assert await payloads.exists(ref)
    assert await payloads.store(b"content", media_type="text/plain", rows=1) == ref
