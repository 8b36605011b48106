"""Summaries: findings instead of exceptions, one checksum for all."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.errors import Unavailable
from noetl.kernel.event import PayloadRef
from noetl.payloads.files import Files
from noetl.payloads.resolver import Resolver
from noetl.payloads.store import PayloadStore, payload_key
from noetl.payloads.summary import PayloadSummary, summarise, summary_checksum


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def payloads(objects: MemoryObjectStore) -> PayloadStore:
    return PayloadStore(objects, "acme", "sales")


@pytest.fixture
async def ref(payloads: PayloadStore) -> PayloadRef:
    return await payloads.store(b"content", media_type="text/plain", rows=3)


async def test_a_sound_payload_has_no_error(payloads: PayloadStore, ref: PayloadRef) -> None:
    assert await summarise(ref, payloads) == PayloadSummary(
        uri=ref.uri, sha256=ref.sha256, bytes=7, rows=3, media_type="text/plain", error=None
    )


async def test_a_missing_object_is_a_finding(payloads: PayloadStore, ref: PayloadRef) -> None:
    await payloads.delete(ref)
    assert (await summarise(ref, payloads)).error == "missing"


@pytest.mark.parametrize("damaged", [b"cOntent", b"conten", b"contents"])
async def test_a_damaged_object_is_a_finding(
    payloads: PayloadStore, objects: MemoryObjectStore, ref: PayloadRef, damaged: bytes
) -> None:
    await objects.put(payload_key("acme", ref.sha256), damaged, overwrite=True)
    summary = await summarise(ref, payloads)
    assert (summary.error, summary.bytes) == ("digest mismatch", 7)


@pytest.mark.parametrize("uri", ["nonsense", "noetl://other/sales/payloads/sha256/" + "0" * 64])
async def test_a_reference_nobody_can_follow_is_a_finding(payloads: PayloadStore, ref: PayloadRef, uri: str) -> None:
    assert (await summarise(msgspec.structs.replace(ref, uri=uri), payloads)).error == "invalid reference"


class Silent(MemoryObjectStore):
    async def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        yield b"con"
        raise Unavailable("the bucket does not answer")


async def test_an_outage_is_no_finding_unless_less_will_do(ref: PayloadRef) -> None:
    silent = PayloadStore(Silent(), "acme", "sales")
    with pytest.raises(Unavailable):
        await summarise(ref, silent)
    assert (await summarise(ref, silent, degraded=True)).error == "store not available"


async def test_what_lies_elsewhere_is_found_by_its_address(payloads: PayloadStore, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    ref = PayloadRef(uri=f"file://{file}", sha256=digest, media_type="text/plain", bytes=7)
    resolver = Resolver({"file": lambda: Files([tmp_path])})
    assert (await summarise(ref, payloads, resolver)).error is None
    assert (await summarise(ref, payloads)).error == "invalid reference"
    for content in (b"c0ntent", b"content and more", b"con"):
        file.write_bytes(content)
        assert (await summarise(ref, payloads, resolver)).error == "digest mismatch"
    file.unlink()
    assert (await summarise(ref, payloads, resolver)).error == "missing"
    unknown = msgspec.structs.replace(ref, uri="ftp://host/x")
    assert (await summarise(unknown, payloads, resolver)).error == "invalid reference"
    outside = msgspec.structs.replace(ref, uri="file:///etc/passwd")
    assert (await summarise(outside, payloads, resolver, degraded=True)).error == "store not available"


def summary(number: int, **changes: object) -> PayloadSummary:
    made = PayloadSummary(
        uri=f"noetl://acme/sales/payloads/sha256/{number:064x}",
        sha256=f"{number:064x}",
        bytes=number,
        rows=None,
        media_type="text/plain",
        error=None,
    )
    return msgspec.structs.replace(made, **changes)


def test_the_checksum_does_not_depend_on_the_order() -> None:
    summaries = [summary(number) for number in range(20)]
    shuffled = random.Random(7).sample(summaries, k=20)
    assert summary_checksum(iter(shuffled)) == summary_checksum(summaries)


@pytest.mark.parametrize("changes", [{"error": "missing"}, {"rows": 0}, {"bytes": 2}, {"media_type": "x"}])
def test_the_checksum_depends_on_every_field(changes: dict[str, object]) -> None:
    assert summary_checksum([summary(1, **changes)]) != summary_checksum([summary(1)])


def test_the_checksum_is_pinned() -> None:
    assert summary_checksum([]) == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    assert (
        summary_checksum([summary(2), summary(1)]) == "4b14e6d439b033f815c360cf21ef1cf3fdee706f7feefedadab9407a64ee6597"
    )


def test_a_repeated_summary_counts() -> None:
    assert summary_checksum([summary(1), summary(1)]) != summary_checksum([summary(1)])
