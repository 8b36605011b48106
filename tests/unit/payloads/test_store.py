"""Bytes under their digest: kept once, verified always, healed when somebody has the right ones."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.errors import IntegrityMismatch, InvalidInput, InvalidName, NotFound, StorageFull
from noetl.kernel.names import PayloadName
from noetl.payloads.store import PayloadStore, payload_key
from noetl.ports.objects import ObjectStore
from tests.contracts.object_store import BrokenSourceError, breaking, keys, pieces, read_all

CSV = "text/csv"
CONTENT = b"id,name\n1,ada\n"
SHA = hashlib.sha256(CONTENT).hexdigest()
KEY = f"acme/{SHA[:2]}/{SHA[2:4]}/{SHA}"


@pytest.fixture(params=["memory", "filesystem"])
async def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryObjectStore() if request.param == "memory" else await FilesystemObjectStore.open(tmp_path / "objects")


@pytest.fixture
def payloads(objects: ObjectStore, tmp_path: Path) -> PayloadStore:
    return PayloadStore(objects, "acme", "sales", memory_bytes=1 << 20, spool_directory=tmp_path)


async def test_a_reference_says_all_that_is_known(payloads: PayloadStore, objects: ObjectStore) -> None:
    ref = await payloads.store(CONTENT, media_type=CSV, rows=1, schema_digest="s1")
    assert (ref.uri, ref.sha256, ref.bytes) == (f"noetl://acme/sales/payloads/sha256/{SHA}", SHA, len(CONTENT))
    assert (ref.media_type, ref.rows, ref.schema_digest, ref.ipc) == (CSV, 1, "s1", None)
    assert await keys(objects) == [KEY, f"{KEY}.meta.json"]
    assert await payloads.fetch(ref) == CONTENT
    assert b"".join(await read_all(payloads.open(ref))) == CONTENT


async def test_a_name_alone_leads_to_the_bytes(payloads: PayloadStore) -> None:
    name = PayloadName(tenant="acme", project="sales", sha256=SHA)
    with pytest.raises(NotFound, match="is not in the store"):
        await payloads.ref_of(name)
    stored = await payloads.store(CONTENT, media_type=CSV, rows=1, schema_digest="s1")
    assert await payloads.ref_of(name) == stored
    assert await payloads.fetch(await payloads.ref_of(name)) == CONTENT


@pytest.mark.parametrize(
    "beside", [None, b"no JSON", b'{"uri": 1}', b"\xff", b'{"uri":"x","sha256":"y","media_type":"a/b","bytes":1}']
)
async def test_a_name_leads_to_the_bytes_without_a_sound_sidecar(
    payloads: PayloadStore, objects: ObjectStore, beside: bytes | None
) -> None:
    await payloads.store(CONTENT, media_type=CSV)
    await objects.delete(f"{KEY}.meta.json")
    if beside is not None:
        await objects.put(f"{KEY}.meta.json", beside)
    found = await payloads.ref_of(PayloadName(tenant="acme", project="sales", sha256=SHA))
    assert (found.media_type, found.bytes) == ("application/octet-stream", len(CONTENT))
    assert await payloads.fetch(found) == CONTENT


async def test_equal_bytes_are_kept_once_however_they_come(payloads: PayloadStore, objects: ObjectStore) -> None:
    first = await payloads.store(CONTENT, media_type=CSV)
    written = [info async for info in objects.list()]
    assert await payloads.store(pieces(CONTENT[:5], CONTENT[5:]), media_type=CSV) == first
    assert await PayloadStore(objects, "acme", "other").store(CONTENT, media_type=CSV) != first
    assert [info async for info in objects.list()] == written


async def test_tenants_do_not_share_bytes(payloads: PayloadStore, objects: ObjectStore) -> None:
    await payloads.store(CONTENT, media_type=CSV)
    foreign = await PayloadStore(objects, "b & co", "sales").store(CONTENT, media_type=CSV)
    assert len(await keys(objects, "acme/")) == len(await keys(objects, "b%20%26%20co/")) == 2
    with pytest.raises(InvalidInput, match="tenant 'b & co'"):
        await payloads.fetch(foreign)


async def test_an_empty_payload_is_a_payload(payloads: PayloadStore) -> None:
    for data in (b"", pieces()):
        ref = await payloads.store(data, media_type=CSV)
        assert ref.bytes == 0
        assert await payloads.fetch(ref) == b""
        assert await read_all(payloads.open(ref)) == []


@pytest.mark.parametrize("total", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20])
async def test_a_stream_is_the_same_on_both_sides_of_the_memory_limit(payloads: PayloadStore, total: int) -> None:
    content = os.urandom(total)
    parts = (content[start : start + 300_001] for start in range(0, total, 300_001))
    ref = await payloads.store(pieces(*parts), media_type=CSV)
    assert ref.sha256 == hashlib.sha256(content).hexdigest()
    assert await payloads.fetch(ref) == content


async def test_a_source_that_fails_leaves_nothing(payloads: PayloadStore, objects: ObjectStore) -> None:
    with pytest.raises(BrokenSourceError):
        await payloads.store(breaking(b"x" * 3_000_000), media_type=CSV)
    assert await keys(objects) == []


async def test_a_full_disk_under_the_spool_is_named(
    payloads: PayloadStore, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StorageFull, match=str(tmp_path)):
        await payloads.store(pieces(b"x" * 3_000_000), media_type=CSV)
    assert await keys(objects) == []


async def test_a_large_stream_is_stored_and_read_in_bounded_memory(tmp_path: Path) -> None:
    objects = await FilesystemObjectStore.open(tmp_path / "objects")
    payloads = PayloadStore(objects, "acme", "sales", spool_directory=tmp_path)
    total = 96 << 20

    async def source() -> AsyncIterator[bytes]:
        for number in range(total >> 16):
            yield bytes([number % 256]) * (1 << 16)

    tracemalloc.start()
    try:
        ref = await payloads.store(source(), media_type=CSV)
        assert await payloads.store(source(), media_type=CSV) == ref
        async for _ in payloads.open(ref):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ref.bytes == total
    assert peak < 24 << 20


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << (bit % 8)
    return bytes(damaged)


DAMAGE = [flipped(CONTENT, 0), flipped(CONTENT, 8 * len(CONTENT) - 1), CONTENT[:-1], CONTENT + b"x", b""]


@pytest.mark.parametrize("damaged", DAMAGE)
async def test_damage_is_detected_and_named(payloads: PayloadStore, objects: ObjectStore, damaged: bytes) -> None:
    ref = await payloads.store(CONTENT, media_type=CSV)
    await objects.put(KEY, damaged, overwrite=True)
    for reading in (payloads.fetch(ref), read_all(payloads.open(ref))):
        with pytest.raises(IntegrityMismatch) as caught:
            await reading
        assert ref.uri in str(caught.value)
        assert KEY in str(caught.value)


@given(st.integers(min_value=0, max_value=8 * len(CONTENT) - 1))
async def test_any_flipped_bit_is_detected(bit: int) -> None:
    objects = MemoryObjectStore()
    payloads = PayloadStore(objects, "acme", "sales")
    ref = await payloads.store(CONTENT, media_type=CSV)
    await objects.put(KEY, flipped(CONTENT, bit), overwrite=True)
    with pytest.raises(IntegrityMismatch):
        await payloads.fetch(ref)


async def test_an_object_that_is_far_too_long_is_not_read_whole(payloads: PayloadStore, objects: ObjectStore) -> None:
    ref = await payloads.store(CONTENT, media_type=CSV)
    await objects.put(KEY, b"x" * 5_000_000, overwrite=True)
    with pytest.raises(IntegrityMismatch, match="has more"):
        await payloads.fetch(ref)
    with pytest.raises(IntegrityMismatch):
        await anext(payloads.open(ref))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("damaged", DAMAGE)
async def test_a_writer_with_the_right_bytes_heals_damage(
    payloads: PayloadStore, objects: ObjectStore, damaged: bytes, streamed: bool
) -> None:
    await objects.put(KEY, damaged)
    ref = await payloads.store(pieces(CONTENT) if streamed else CONTENT, media_type=CSV)
    assert await payloads.fetch(ref) == CONTENT


async def test_a_missing_payload_is_named(payloads: PayloadStore, objects: ObjectStore) -> None:
    ref = await payloads.store(CONTENT, media_type=CSV)
    assert await payloads.exists(ref) is True
    assert await payloads.delete(ref) is True
    assert await keys(objects) == [], "its sidecar goes with it"
    assert await payloads.delete(ref) is False
    assert await payloads.exists(ref) is False
    for reading in (payloads.fetch(ref), read_all(payloads.open(ref))):
        with pytest.raises(NotFound, match=ref.uri):
            await reading


async def test_an_object_of_the_wrong_size_does_not_exist(payloads: PayloadStore, objects: ObjectStore) -> None:
    ref = await payloads.store(CONTENT, media_type=CSV)
    await objects.put(KEY, CONTENT[:-1], overwrite=True)
    assert await payloads.exists(ref) is False


@pytest.mark.parametrize(
    "uri", ["noetl://acme/sales/payloads/sha256/" + "0" * 64, "noetl://acme/sales/datasets/x@1", "no"]
)
async def test_a_reference_that_contradicts_itself_is_refused(payloads: PayloadStore, uri: str) -> None:
    ref = await payloads.store(CONTENT, media_type=CSV)
    with pytest.raises(InvalidInput):
        await payloads.fetch(msgspec.structs.replace(ref, uri=uri))


@pytest.mark.parametrize("tenant", ["", "..", "tenant", "a\0b"])
def test_a_tenant_that_is_no_name_is_refused_at_once(tenant: str) -> None:
    with pytest.raises(InvalidName):
        PayloadStore(MemoryObjectStore(), tenant, "sales")


def test_a_tenant_stays_one_segment_of_the_key() -> None:
    assert payload_key("a/b", SHA).startswith("a%2Fb/")
    assert len(payload_key("ä" * 300, SHA)) < 255
