"""Summaries: findings instead of exceptions, one checksum for all."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.errors import Unavailable
from noetl.kernel.event import PayloadRef
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


async def test_an_outage_is_no_finding(ref: PayloadRef) -> None:
    class Silent(MemoryObjectStore):
        async def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
            yield b"con"
            raise Unavailable("the bucket does not answer")

    with pytest.raises(Unavailable):
        await summarise(ref, PayloadStore(Silent(), "acme", "sales"))


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
