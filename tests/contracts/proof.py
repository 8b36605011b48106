"""A ledger's own claims, computed again from nothing but its stored events."""

from __future__ import annotations

import hashlib

from noetl.kernel.chain import MODULUS, LedgerHead, StreamHead, extend, genesis, mac_of
from noetl.kernel.streams import is_dense
from noetl.ports.ledger import Audited, Ledger, Stream

_PAGE = 500


async def audited(ledger: Ledger, root: Stream | None = None) -> list[Audited]:
    """Every stored event, page by page."""
    found: list[Audited] = []
    while page := await ledger.audit(root=root, after_position=found[-1].position if found else 0, limit=_PAGE):
        found += page
    return found


async def all_heads(ledger: Ledger) -> list[StreamHead]:
    """Every stream head, page by page."""
    found: list[StreamHead] = []
    while page := await ledger.heads(
        after=Stream(found[-1].tenant_id, found[-1].stream_id) if found else None, limit=_PAGE
    ):
        found += page
    return found


async def prove(ledger: Ledger) -> int:
    """Assert that checksums, chains, heads and MACs all follow from the events; return how many there are."""
    items = await audited(ledger)
    assert [item.position for item in items] == list(range(1, len(items) + 1))
    streams: dict[Stream, list[Audited]] = {}
    for item in items:
        assert hashlib.sha256(item.record.body()).hexdigest() == item.envelope_checksum
        streams.setdefault(Stream(item.record.tenant_id, item.record.stream_id), []).append(item)
    heads = await all_heads(ledger)
    assert {(head.tenant_id, head.stream_id) for head in heads if head.count} == {
        (stream.tenant_id, stream.stream_id) for stream in streams
    }
    for head in heads:
        _prove_stream(head, streams.get(Stream(head.tenant_id, head.stream_id), []), ledger.mac_key)
    await _prove_ledger_head(ledger, heads, len(items))
    return len(items)


def _prove_stream(head: StreamHead, items: list[Audited], key: bytes | None) -> None:
    chain, previous, last_id, last_time = genesis(head.stream_id), None, 0, ""
    for number, item in enumerate(items, start=1):
        record = item.record
        chain = extend(chain, item.envelope_checksum)
        assert record.event_id > last_id
        assert record.ingest_time >= last_time
        if is_dense(head.stream_id):
            assert (record.stream_version, record.prev_event_id, item.chain_hash) == (number, previous, chain)
        else:
            assert (record.stream_version, record.prev_event_id, item.chain_hash) == (record.event_id, None, None)
        previous = last_id = record.event_id
        last_time = record.ingest_time
    version = len(items) if is_dense(head.stream_id) else last_id
    assert (head.count, head.version, head.event_id, head.chain_hash) == (len(items), version, last_id, chain)
    assert head.mac == (None if key is None else mac_of(key, head.digest()))


async def _prove_ledger_head(ledger: Ledger, heads: list[StreamHead], events: int) -> None:
    ledger_head = await ledger.ledger_head()
    total = sum(int.from_bytes(head.digest(), "big") for head in heads) % MODULUS
    assert (ledger_head.position, ledger_head.streams) == (events, len(heads))
    assert ledger_head.total == f"{total:064x}"
    chain = LedgerHead().advanced([item.envelope_checksum for item in await ledger.audit(limit=1_000_000)])
    assert (ledger_head.chain_hash, ledger_head.position) == (chain.chain_hash, chain.position)
    if events and ledger.mac_key is not None:
        assert ledger_head.mac == mac_of(ledger.mac_key, ledger_head.digest())
