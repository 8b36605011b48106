"""The state as of a moment: what counts as the moment, and which snapshots may stand in for events."""

from __future__ import annotations

import msgspec
import pytest

from noetl.errors import InvalidInput, NotFound
from noetl.kernel.event import PayloadRef
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import UpcasterRegistry
from noetl.payloads.store import payload_key
from noetl.replay.service import Cutoff, Replayer
from tests.scribe import START
from tests.unit.kernel.drafts import STREAM, TELEMETRY, draft
from tests.unit.replay.shop import KEY, Shop

SECOND = 1_000_000


@pytest.fixture
def shop() -> Shop:
    return Shop()


# --- Cutoffs ----------------------------------------------------------------------------------------------


async def test_without_a_cutoff_everything_counts(shop: Shop) -> None:
    events = await shop.run_steps(4)
    replayed = await shop.replayer.replay(STREAM)
    assert (replayed.state.root.event_count, replayed.position, replayed.events_folded) == (5, 5, 5)
    assert replayed.state.root.last_event_id == events[-1].event_id
    assert replayed.last_ingest_time == events[-1].ingest_time


@pytest.mark.parametrize("index", [0, 2, 4])
async def test_an_event_is_included(index: int, shop: Shop) -> None:
    events = await shop.run_steps(4)
    replayed = await shop.replayer.replay(STREAM, Cutoff(event_id=events[index].event_id))
    assert replayed.state.root.last_event_id == events[index].event_id


async def test_an_event_of_a_stream_below_is_a_moment_too(shop: Shop) -> None:
    await shop.run_steps(1)
    [beat] = await shop.write(draft("command.heartbeat", command_id=9), stream=TELEMETRY)
    await shop.write(draft())
    replayed = await shop.replayer.replay(STREAM, Cutoff(event_id=beat.event_id))
    assert (replayed.state.root.event_count, replayed.position) == (3, 3)


async def test_an_event_of_another_execution_is_not_found(shop: Shop) -> None:
    await shop.run_steps(1)
    [other, *_] = await shop.run_steps(1, stream=Stream("acme", "execution/7"))
    with pytest.raises(NotFound, match=f"there is no event {other.event_id} in {STREAM.stream_id}"):
        await shop.replayer.replay(STREAM, Cutoff(event_id=other.event_id))


async def test_a_position_counts_over_the_whole_ledger(shop: Shop) -> None:
    await shop.run_steps(1)
    await shop.run_steps(2, stream=Stream("acme", "execution/7"))
    await shop.write(draft())
    at_five = await shop.replayer.replay(STREAM, Cutoff(position=5))
    assert (at_five.state.root.event_count, at_five.position) == (2, 2)
    assert (await shop.replayer.replay(STREAM, Cutoff(position=6))).state.root.event_count == 3


@pytest.mark.parametrize("position", [-1, 0, 6])
async def test_a_position_outside_the_ledger_is_refused(position: int, shop: Shop) -> None:
    await shop.run_steps(4)
    with pytest.raises(InvalidInput, match=f"position {position} is outside the ledger, which has 1 to 5"):
        await shop.replayer.replay(STREAM, Cutoff(position=position))


async def test_a_time_is_the_time_of_arrival_inclusive(shop: Shop) -> None:
    """Events arrive at one second past the start, two, and so on; what the producer's clock said does not matter."""
    await shop.write(draft(event_time="1999-01-01T00:00:00.000000Z"))
    await shop.write(draft(event_time="2999-01-01T00:00:00.000000Z"))
    for micros, count in ((SECOND - 1, 0), (SECOND, 1), (2 * SECOND - 1, 1), (2 * SECOND, 2)):
        replayed = await shop.replayer.replay(STREAM, Cutoff(time=START + micros))
        assert replayed.state.root.event_count == count


async def test_a_time_to_come_is_refused(shop: Shop) -> None:
    await shop.run_steps(1)
    await shop.replayer.replay(STREAM, Cutoff(time=shop.clock.now()))
    with pytest.raises(InvalidInput, match="is in the future") as caught:
        await shop.replayer.replay(STREAM, Cutoff(time=shop.clock.now() + 1))
    assert caught.value.hint == "a log can only be asked about the past"


async def test_an_execution_that_is_not_there(shop: Shop) -> None:
    with pytest.raises(NotFound, match="there is no execution 4101"):
        await shop.replayer.replay(STREAM)


async def test_a_long_log_is_read_in_pages(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    await shop.run_steps(10)
    whole = await shop.replayer.replay(STREAM)
    monkeypatch.setattr("noetl.replay.service._PAGE", 3)
    assert (await shop.replayer.replay(STREAM)).checksum() == whole.checksum()
    assert (await shop.replayer.replay(STREAM, Cutoff(position=7))).state.root.event_count == 7


# --- Snapshots --------------------------------------------------------------------------------------------


async def test_a_snapshot_saves_the_events_before_it(shop: Shop) -> None:
    await shop.run_steps(5)
    taken = await shop.replayer.snapshot(STREAM)
    await shop.write(draft())
    short, full = await shop.replayer.replay(STREAM), await shop.replayer.replay(STREAM, snapshots=False)
    assert (short.snapshot, short.events_folded) == (taken, 1)
    assert (full.snapshot, full.events_folded) == (None, 7)
    assert short.bundle() == full.bundle()
    assert short.checksum() == full.checksum()
    assert short.last_ingest_time == full.last_ingest_time


async def test_the_newest_snapshot_before_the_cutoff_is_used(shop: Shop) -> None:
    positions = []
    for _ in range(3):
        await shop.write(draft(), draft())
        positions.append((await shop.replayer.snapshot(STREAM)).position)
    assert positions == [2, 4, 6]
    for cutoff, used in ((6, 6), (5, 4), (4, 4), (3, 2), (2, 2), (1, None)):
        replayed = await shop.replayer.replay(STREAM, Cutoff(position=cutoff))
        assert (replayed.snapshot.position if replayed.snapshot else None) == used
        assert replayed.state.root.event_count == cutoff


async def test_a_snapshot_that_covers_later_events_is_left_aside(shop: Shop) -> None:
    await shop.run_steps(2)
    await shop.replayer.snapshot(STREAM)
    replayed = await shop.replayer.replay(STREAM, Cutoff(time=START + 2 * SECOND))
    assert replayed.snapshot is None
    assert [item.reason for item in replayed.rejected] == ["it covers events after the time asked for"]
    assert replayed.state.root.event_count == 2


async def test_a_snapshot_of_another_registry_is_left_aside(shop: Shop) -> None:
    await shop.run_steps(2)
    await shop.replayer.snapshot(STREAM)
    other = Replayer(shop.ledger, shop.projections, UpcasterRegistry(), shop.clock)
    replayed = await other.replay(STREAM)
    assert replayed.snapshot is None
    assert [item.reason for item in replayed.rejected] == ["made under another upcaster registry"]
    assert replayed.bundle() == (await shop.replayer.replay(STREAM)).bundle()


CHANGES: list[tuple[dict[str, object], str, str]] = [
    ({"fold_version": 0}, "made by fold version 0, this is 1", "made by fold version 0"),
    ({"checksum": "0" * 64}, "its rows do not give its checksum", "not sealed with this ledger's key"),
    ({"body": b"torn"}, "cannot be read", "cannot be read"),
    ({"position": 4}, "it was not taken at the position or the time", "not sealed with this ledger's key"),
    ({"last_ingest_time": "2020-01-01T00:00:00.000000Z"}, "it was not taken at the position or the time", "not sealed"),
    ({"event_count": 17}, "it was not taken at the position or the time", "it was not taken at the position"),
    ({"mac": None}, "", "not sealed with this ledger's key"),
]


@pytest.mark.parametrize("key", [KEY, None], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize(("changes", "unkeyed", "keyed"), CHANGES)
async def test_a_snapshot_that_was_changed_is_left_aside_and_reported(
    changes: dict[str, object], unkeyed: str, keyed: str, key: bytes | None
) -> None:
    shop = Shop(key=key)
    await shop.run_steps(2)
    older = await shop.replayer.snapshot(STREAM)
    await shop.run_steps(2, stream=Stream("acme", "execution/7"))
    await shop.write(draft())
    good = await shop.replayer.snapshot(STREAM)
    await shop.projections.drop_snapshots(STREAM, keep=0)
    for snapshot in (older, msgspec.structs.replace(good, **changes)):
        await shop.projections.save_snapshot(snapshot)
    replayed = await shop.replayer.replay(STREAM)
    assert replayed.checksum() == (await shop.replayer.replay(STREAM, snapshots=False)).checksum()
    reason = unkeyed if key is None else keyed
    if not reason:
        assert not replayed.rejected
        return
    assert replayed.snapshot == older
    [rejected] = replayed.rejected
    assert rejected.position == changes.get("position", good.position)
    assert reason in rejected.reason


# --- Payloads ---------------------------------------------------------------------------------------------


async def stored(shop: Shop, content: bytes) -> PayloadRef:
    return await shop.payloads.of_tenant("acme").store(content, media_type="text/plain", rows=3)


async def test_payloads_are_read_and_summarised(shop: Shop) -> None:
    refs = [await stored(shop, content) for content in (b"one", b"two", b"one")]
    for ref in refs:
        await shop.write(draft(payload_ref=ref))
    report = (await shop.replayer.replay(STREAM, resolve_payloads=10)).payloads
    assert report is not None
    assert (report.payloads, report.missing_or_damaged) == (2, 0)
    assert [summary.error for summary in report.summaries] == [None, None]
    assert {summary.sha256 for summary in report.summaries} == {ref.sha256 for ref in refs}


async def test_missing_and_damaged_payloads_are_findings(shop: Shop) -> None:
    sound, missing, damaged = [await stored(shop, content) for content in (b"sound", b"missing", b"damaged")]
    for ref in (sound, missing, damaged):
        await shop.write(draft(payload_ref=ref))
    whole = (await shop.replayer.replay(STREAM, resolve_payloads=10)).payloads
    await shop.objects.delete(payload_key("acme", missing.sha256))
    await shop.objects.put(payload_key("acme", damaged.sha256), b"damagee", overwrite=True)
    report = (await shop.replayer.replay(STREAM, resolve_payloads=10)).payloads
    assert whole is not None
    assert report is not None
    assert (report.payloads, report.missing_or_damaged) == (3, 2)
    errors = {summary.sha256: summary.error for summary in report.summaries}
    assert errors == {sound.sha256: None, missing.sha256: "missing", damaged.sha256: "digest mismatch"}
    assert report.checksum != whole.checksum


async def test_the_list_of_summaries_is_bounded_and_the_counts_are_not(shop: Shop) -> None:
    for number in range(5):
        await shop.write(draft(payload_ref=await stored(shop, str(number).encode())))
    few = (await shop.replayer.replay(STREAM, resolve_payloads=2)).payloads
    all_ = (await shop.replayer.replay(STREAM, resolve_payloads=10)).payloads
    assert few is not None
    assert all_ is not None
    assert (few.payloads, len(few.summaries)) == (5, 2)
    assert few.checksum == all_.checksum


async def test_payloads_before_a_snapshot_are_read_too(shop: Shop) -> None:
    await shop.write(draft(payload_ref=await stored(shop, b"early")))
    await shop.replayer.snapshot(STREAM)
    await shop.write(draft())
    replayed = await shop.replayer.replay(STREAM, resolve_payloads=10)
    assert replayed.snapshot is None
    assert replayed.payloads is not None
    assert replayed.payloads.payloads == 1


async def test_without_a_payload_store_there_is_nothing_to_resolve(shop: Shop) -> None:
    await shop.run_steps(1)
    bare = Replayer(shop.ledger, shop.projections, shop.registry, shop.clock)
    with pytest.raises(InvalidInput, match="no payload store"):
        await bare.replay(STREAM, resolve_payloads=1)
