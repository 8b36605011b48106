"""Events whose payload is elsewhere: there and back, and said when it cannot be had."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel.event import MAX_PAYLOAD_BYTES, Draft, Envelope, PayloadRef
from noetl.kernel.stamp import Batch, Stream
from noetl.payloads.envelopes import MARK
from noetl.payloads.store import PayloadStore

START = 1_800_000_000_000_000
LARGE = {"input": {"rows": ["x" * 50] * 4000}, "error": {"code": "E"}, "n": 1}


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def payloads(objects: MemoryObjectStore) -> PayloadStore:
    return PayloadStore(objects, "acme", "sales")


def draft(payload: dict[str, Any], ref: PayloadRef | None = None) -> Draft:
    return Draft(
        event_type="call.done", tenant_id="acme", organization_id="o", project_id="sales", principal="p",
        producer="noetl://tenant/acme", execution_id=7, payload=payload, payload_ref=ref,
    )  # fmt: skip


async def stamped(said: Draft) -> Envelope:
    ledger = MemoryLedger(VirtualClock(START))
    (event,) = await ledger.append([Batch(stream=Stream("acme", "execution/7"), drafts=[said], expected_version=0)])
    return event


async def test_what_fits_stays(payloads: PayloadStore, objects: MemoryObjectStore) -> None:
    small = draft({"input": {"a": 1}})
    assert await payloads.externalize_envelope(small, inline_max=MAX_PAYLOAD_BYTES) is small
    assert [info async for info in objects.list()] == []
    event = await stamped(small)
    assert await payloads.resolve_envelope(event) is event


async def test_what_is_too_large_goes_and_comes_back(payloads: PayloadStore) -> None:
    said = await payloads.externalize_envelope(draft(LARGE), inline_max=1000, keep={"error"})
    assert said.payload == {"error": {"code": "E"}}
    assert said.payload_ref is not None
    event = await stamped(said)
    resolved = await payloads.resolve_envelope(event)
    assert (resolved.payload, resolved.payload_ref) == (LARGE, None)
    assert msgspec.structs.replace(resolved, payload=event.payload, payload_ref=event.payload_ref) == event


async def test_equal_payloads_are_kept_once(payloads: PayloadStore) -> None:
    first, second = [await payloads.externalize_envelope(draft(LARGE), inline_max=1000) for _ in range(2)]
    assert first.payload_ref == second.payload_ref


async def test_an_event_has_one_reference(payloads: PayloadStore) -> None:
    ref = await payloads.store(b"rows", media_type="text/csv")
    with pytest.raises(InvalidInput, match=r"'call.done' is larger than 1000 bytes, and it has a reference already"):
        await payloads.externalize_envelope(draft(LARGE, ref), inline_max=1000)


async def test_a_payload_that_is_gone_is_an_error_unless_asked_otherwise(payloads: PayloadStore) -> None:
    event = await stamped(await payloads.externalize_envelope(draft(LARGE), inline_max=1000))
    assert event.payload_ref is not None
    await payloads.delete(event.payload_ref)
    with pytest.raises(NotFound, match=event.payload_ref.uri):
        await payloads.resolve_envelope(event)
    marked = await payloads.resolve_envelope(event, degraded=True)
    assert (marked.payload, marked.payload_ref) == (event.payload, event.payload_ref)
    assert event.payload_ref.uri in marked.meta[MARK]


@pytest.mark.parametrize("bit", [0, 77, 10_000])
async def test_a_payload_that_is_damaged_is_never_put_back(
    payloads: PayloadStore, objects: MemoryObjectStore, bit: int
) -> None:
    event = await stamped(await payloads.externalize_envelope(draft(LARGE), inline_max=1000))
    assert event.payload_ref is not None
    key = payloads.key(event.payload_ref)
    content = bytearray(await objects.get(key))
    content[bit // 8] ^= 1 << bit % 8
    await objects.put(key, bytes(content), overwrite=True)
    with pytest.raises(IntegrityMismatch, match=key):
        await payloads.resolve_envelope(event)
    assert "is damaged" in (await payloads.resolve_envelope(event, degraded=True)).meta[MARK]


@pytest.mark.parametrize("content", [b"[1]", b"{", b'"text"'])
async def test_json_that_is_no_payload_is_named(payloads: PayloadStore, content: bytes) -> None:
    ref = await payloads.store(content, media_type="application/json")
    event = await stamped(draft({}, ref))
    with pytest.raises(IntegrityMismatch, match=f"of event {event.event_id} is not the JSON object"):
        await payloads.resolve_envelope(event)


async def test_data_stays_a_reference(payloads: PayloadStore) -> None:
    event = await stamped(draft({}, await payloads.store(b"a,b\n", media_type="text/csv")))
    assert await payloads.resolve_envelope(event) is event
    elsewhere = msgspec.structs.replace(
        await payloads.store(b"{}", media_type="application/json"), uri="s3://bucket/object"
    )
    event = await stamped(draft({}, elsewhere))
    assert await payloads.resolve_envelope(event) is event
