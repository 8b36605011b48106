"""A walk along one stream names the event that does not fit, once, and goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from noetl.kernel.event import Envelope, record_of
from noetl.kernel.merkle import Merkle
from noetl.kernel.seal import Seal
from noetl.ports.ledger import Audited
from noetl.replay.walk import StreamWalk
from tests.scribe import Scribe
from tests.unit.kernel.drafts import STREAM, TELEMETRY, batch, draft


def audited(events: Sequence[Envelope]) -> list[Audited]:
    return [
        Audited(
            position=position,
            record=record_of(event),
            envelope_checksum=event.envelope_checksum,
            chain_hash=event.chain_hash,
        )
        for position, event in enumerate(events, 1)
    ]


def walked(items: Sequence[Audited], stream_id: str = STREAM.stream_id) -> list[int]:
    walk = StreamWalk(stream_id)
    return [event_id for item in items for event_id, _ in walk.step(item)]


@pytest.fixture
def dense() -> list[Audited]:
    scribe = Scribe()
    for number in range(6):
        scribe.now += 1_000_000
        scribe.append(batch(draft(payload={"n": number})))
    return audited(scribe.written)


@pytest.fixture
def sparse() -> list[Audited]:
    scribe = Scribe()
    for _ in range(6):
        scribe.now += 1_000_000
        scribe.append(batch(draft("command.heartbeat"), stream=TELEMETRY))
    return audited(scribe.written)


def changed(item: Audited, **fields: object) -> Audited:
    return msgspec.structs.replace(item, record=msgspec.structs.replace(item.record, **fields))


def test_a_sound_stream_raises_nothing(dense: list[Audited], sparse: list[Audited]) -> None:
    assert walked(dense) == []
    assert walked(sparse, TELEMETRY.stream_id) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda item: changed(item, principal="eve"),
        lambda item: changed(item, stream_version=17),
        lambda item: changed(item, prev_event_id=17),
        lambda item: changed(item, ingest_time="2020-01-01T00:00:00.000000Z"),
        lambda item: msgspec.structs.replace(item, envelope_checksum="0" * 64),
        lambda item: msgspec.structs.replace(item, envelope_checksum="not hex"),
        lambda item: msgspec.structs.replace(item, chain_hash="0" * 64),
        lambda item: msgspec.structs.replace(item, chain_hash="not hex"),
        lambda item: msgspec.structs.replace(item, chain_hash=None),
    ],
)
def test_a_changed_event_is_named(change: Callable[[Audited], Audited], dense: list[Audited]) -> None:
    items = [*dense[:3], change(dense[3]), *dense[4:]]
    assert dense[3].record.event_id in walked(items)


def test_one_bad_event_does_not_accuse_those_after_it(dense: list[Audited]) -> None:
    assert set(walked([*dense[:2], changed(dense[2], principal="eve"), *dense[3:]])) == {dense[2].record.event_id}


def test_a_missing_event_is_named(dense: list[Audited]) -> None:
    assert walked(dense[:2] + dense[3:])[0] == dense[2].record.event_id


def test_events_out_of_order_are_named(sparse: list[Audited]) -> None:
    items = [*sparse[:2], sparse[3], sparse[2], *sparse[4:]]
    assert set(walked(items, TELEMETRY.stream_id)) == {sparse[2].record.event_id}


def test_a_sparse_event_has_its_id_for_a_version_and_no_chain(sparse: list[Audited]) -> None:
    numbered = changed(sparse[1], stream_version=2)
    chained = msgspec.structs.replace(sparse[2], chain_hash="0" * 64)
    found = walked([sparse[0], numbered, chained], TELEMETRY.stream_id)
    assert set(found) == {sparse[1].record.event_id, sparse[2].record.event_id}


def sealed(items: Sequence[Audited], count: int, *, final: bool = False) -> Seal:
    tree = Merkle()
    for item in items[:count]:
        tree.add(item.envelope_checksum)
    return Seal(
        stream_id=TELEMETRY.stream_id, root=tree.root(), count=count, first_event_id=1, last_event_id=2,
        first_position=1, last_position=2, peaks=tree.peaks, final=final,
    )  # fmt: skip


@pytest.mark.parametrize(("kept", "count", "final", "reason"), [
    (6, 4, False, None),
    (6, 6, True, None),
    (3, 4, False, "1 of 4 sealed events are missing"),
    (6, 4, True, "2 events were added after it was closed"),
])  # fmt: skip
def test_a_seal_holds_for_what_it_was_put_on(
    kept: int, count: int, final: bool, reason: str | None, sparse: list[Audited]
) -> None:
    walk = StreamWalk(TELEMETRY.stream_id, frozenset({count}))
    for item in sparse[:kept]:
        assert list(walk.step(item)) == []
    assert walk.check_seal(sealed(sparse, count, final=final)) == reason
    assert walk.unsealed == (kept - count if reason is None else kept)


def test_a_seal_over_other_events_does_not_hold(sparse: list[Audited]) -> None:
    walk = StreamWalk(TELEMETRY.stream_id, frozenset({4}))
    for item in [sparse[0], *sparse[2:]]:
        list(walk.step(item))
    assert walk.check_seal(sealed(sparse, 4)) == "its first 4 events are not the ones that were sealed"
