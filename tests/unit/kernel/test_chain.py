from __future__ import annotations

import hashlib
import hmac

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.kernel.chain import LedgerHead, StreamHead, extend, genesis, mac_of

KEY = b"wallet key"
HEAD = StreamHead(
    tenant_id="acme",
    stream_id="execution/7",
    version=3,
    event_id=900,
    count=3,
    chain_hash="ab" * 32,
    ingest_time="2026-03-02T08:00:00.000000Z",
)


def test_the_chain_begins_with_the_streams_name() -> None:
    assert genesis("execution/7") == hashlib.sha256(b"execution/7").hexdigest()


def test_each_link_hashes_the_one_before_and_the_events_checksum() -> None:
    checksum = hashlib.sha256(b"event").hexdigest()
    link = hashlib.sha256(bytes.fromhex(genesis("execution/7")) + bytes.fromhex(checksum))
    assert extend(genesis("execution/7"), checksum) == link.hexdigest()


def test_swapping_two_events_changes_the_chain() -> None:
    one, two = (hashlib.sha256(text).hexdigest() for text in (b"1", b"2"))
    start = genesis("execution/7")
    assert extend(extend(start, one), two) != extend(extend(start, two), one)


def test_the_mac_is_hmac_sha256() -> None:
    assert mac_of(KEY, HEAD.digest()) == hmac.new(KEY, HEAD.digest(), hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tenant_id", "other"),
        ("stream_id", "execution/8"),
        ("version", 4),
        ("event_id", 901),
        ("count", 4),
        ("chain_hash", "cd" * 32),
        ("ingest_time", "2026-03-02T08:00:00.000001Z"),
        ("sealed", True),
    ],
)
def test_every_field_of_a_head_is_under_its_mac(name: str, value: object) -> None:
    assert mac_of(KEY, msgspec.structs.replace(HEAD, **{name: value}).digest()) != mac_of(KEY, HEAD.digest())


def test_another_key_gives_another_mac() -> None:
    assert mac_of(b"other", HEAD.digest()) != mac_of(KEY, HEAD.digest())


def test_the_mac_does_not_cover_itself() -> None:
    assert msgspec.structs.replace(HEAD, mac="00").digest() == HEAD.digest()


@pytest.mark.parametrize(
    ("name", "value"), [("position", 1), ("streams", 1), ("total", "1" * 64), ("chain_hash", "1" * 64)]
)
def test_every_field_of_the_ledgers_head_is_under_its_mac(name: str, value: object) -> None:
    assert msgspec.structs.replace(LedgerHead(), **{name: value}).digest() != LedgerHead().digest()


def from_scratch(position: int, heads: dict[str, StreamHead]) -> LedgerHead:
    total = sum(int.from_bytes(head.digest(), "big") for head in heads.values()) % 2**256
    checksums = [f"{place:064x}" for place in range(1, position + 1)]
    chained = LedgerHead().advanced(checksums)
    return LedgerHead(position=position, streams=len(heads), total=f"{total:064x}", chain_hash=chained.chain_hash)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["execution/1", "execution/2", "tenant/acme", "subscription/a"]), max_size=40))
def test_moving_the_ledgers_head_equals_adding_it_up_again(moves: list[str]) -> None:
    head, heads = LedgerHead(), dict[str, StreamHead]()
    for position, stream_id in enumerate(moves, start=1):
        after = msgspec.structs.replace(HEAD, stream_id=stream_id, version=position, event_id=position)
        head = head.advanced([f"{position:064x}"]).moved(heads.get(stream_id), after)
        heads[stream_id] = after
    assert head == from_scratch(len(moves), heads)


def test_moving_leaves_the_mac_to_the_writer() -> None:
    assert LedgerHead(mac="00").moved(None, HEAD).mac is None


def test_a_deleted_stream_is_missed() -> None:
    both = LedgerHead().moved(None, HEAD).moved(None, msgspec.structs.replace(HEAD, stream_id="execution/8"))
    assert both != from_scratch(2, {HEAD.stream_id: HEAD})


def test_two_events_that_changed_places_are_noticed() -> None:
    one, other = "1" * 64, "2" * 64
    assert LedgerHead().advanced([one, other]).chain_hash != LedgerHead().advanced([other, one]).chain_hash
