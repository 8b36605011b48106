"""What every Ledger must do.

A subclass brings the fixture `open_ledger`: calling it opens the ledger of that name, on one clock with
`clock`; for a durable ledger the same name again is the same ledger, as after a restart.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import (
    IdempotencyMismatch,
    IntegrityMismatch,
    InvalidEvent,
    NoetlError,
    PartialDuplicate,
    StreamSealed,
    Unavailable,
    VersionConflict,
)
from noetl.kernel.event import MAX_PAYLOAD_BYTES, Draft, Envelope, Recorded, Ref
from noetl.kernel.merkle import Merkle
from noetl.kernel.seal import Seal
from noetl.ports.ledger import Adopted, Ledger, Stream
from tests.contracts.proof import audited, prove
from tests.unit.kernel.drafts import EXECUTION, PAYLOAD_REF, STAGE, STREAM, TELEMETRY, batch, draft

KEY = b"the wallet's key, 32 bytes long."
NOBODY = Stream("acme", "execution/999999")
OTHER_TENANT = Stream("globex", STREAM.stream_id)
TENANT_STREAM = Stream("acme", "tenant/acme")

OpenLedger = Callable[[str], Awaitable[Ledger]]


def keyed(*keys: str, **fields: Any) -> list[Draft]:
    return [draft(idempotency_key=key, payload={"said": key}, **fields) for key in keys]


def frame(**fields: Any) -> Draft:
    return draft("frame.committed", aggregate_type="frame", stage_id=77, **fields)


async def write(ledger: Ledger, *drafts: Draft, stream: Stream = STREAM) -> list[Envelope]:
    return list(await ledger.append([batch(*drafts, stream=stream)]))


async def everything(ledger: Ledger) -> list[Envelope]:
    return [item.event for item in await ledger.read_all(limit=1_000_000)]


def positions(items: Any) -> list[int]:
    return [item.position for item in items]


async def seal_of(ledger: Ledger, stream: Stream, *, final: bool) -> dict[str, Any]:
    items = await ledger.read(stream)
    tree = Merkle()
    for item in items:
        tree.add(item.event.envelope_checksum)
    seal = Seal(
        stream_id=stream.stream_id,
        root=tree.root(),
        count=tree.count,
        first_event_id=items[0].event.event_id if items else 0,
        last_event_id=items[-1].event.event_id if items else 0,
        first_position=items[0].position if items else 0,
        last_position=items[-1].position if items else 0,
        peaks=tree.peaks,
        final=final,
    )
    return {"seal": {**msgspec.to_builtins(seal), "peaks": list(seal.peaks)}}


async def close_stage(ledger: Ledger) -> list[Envelope]:
    payload = await seal_of(ledger, STAGE, final=True)
    return await write(ledger, draft("stage.closed", aggregate_type="stage", stage_id=77, payload=payload))


async def take(items: AsyncIterator[Recorded], count: int) -> list[Recorded]:
    return [await anext(items) for _ in range(count)]


class LedgerContract:
    @pytest.fixture
    async def ledger(self, open_ledger: OpenLedger) -> Ledger:
        return await open_ledger("ledger")

    @pytest.fixture
    async def other(self, open_ledger: OpenLedger) -> Ledger:
        return await open_ledger("other")

    # --- append

    async def test_a_new_ledger_is_empty(self, ledger: Ledger) -> None:
        assert await ledger.position() == 0
        assert await everything(ledger) == []
        assert await ledger.heads() == []
        assert await ledger.head(STREAM) is None
        assert await prove(ledger) == 0

    async def test_what_was_appended_is_read_back_equal(self, ledger: Ledger) -> None:
        full = draft(
            causation_id=1, correlation_id="flow", idempotency_key="k", parent_event_id=2, command_id=3, stage_id=77,
            frame_id=5, parent_execution_id=6, node_name="lädt", status="OK", attempt=1,
            payload={"a": [1, 2.5, None, "日本 🙂", {"deep": True}], "nul": "\0"}, payload_ref=PAYLOAD_REF,
            meta={"b": -0.0}, event_time="2026-03-02T07:59:59.000000Z",
        )  # fmt: skip
        written = await write(ledger, full, draft())
        assert [item.event for item in await ledger.read(STREAM)] == written
        assert await prove(ledger) == 2

    async def test_one_append_covers_all_its_streams(self, ledger: Ledger) -> None:
        await ledger.append(
            [
                batch(draft("stage.opened", stage_id=Ref(0)), expected_version=0),
                batch(frame(), frame(), stream=STAGE),
                batch(draft("worker.heartbeat"), stream=TELEMETRY),
            ]
        )
        assert positions(await ledger.read_root(STREAM)) == [1, 2, 3, 4]
        assert len(await ledger.read(STAGE)) == 2
        assert await prove(ledger) == 4

    async def test_references_between_drafts_become_ids(self, ledger: Ledger) -> None:
        first, second = await write(
            ledger, draft("command.issued", command_id=Ref(0)), draft(command_id=Ref(0), parent_event_id=Ref(0))
        )
        assert first.command_id == first.event_id == second.command_id == second.parent_event_id

    async def test_nothing_to_append_writes_nothing(self, ledger: Ledger) -> None:
        assert list(await ledger.append([])) == []
        assert list(await ledger.append([batch()])) == []
        assert await ledger.position() == 0
        assert await ledger.heads() == []

    async def test_a_batch_without_drafts_still_guards_its_stream(self, ledger: Ledger) -> None:
        await write(ledger, frame(), stream=STAGE)
        await write(ledger, draft(), draft())
        await ledger.append([batch(expected_version=2), batch(frame(), stream=STAGE)])
        with pytest.raises(VersionConflict):
            await ledger.append([batch(expected_version=1), batch(frame(), stream=STAGE)])
        assert await prove(ledger) == 4

    async def test_the_expected_version_of_a_new_stream_is_0(self, ledger: Ledger) -> None:
        await ledger.append([batch(draft(), expected_version=0)])
        with pytest.raises(VersionConflict):
            await ledger.append([batch(draft(), expected_version=0)])
        with pytest.raises(VersionConflict):
            await ledger.append([batch(frame(), stream=STAGE, expected_version=1)])
        assert await prove(ledger) == 1

    async def test_a_writer_that_expects_nothing_always_appends(self, ledger: Ledger) -> None:
        for count in range(1, 4):
            await ledger.append([batch(draft(), expected_version=None)])
            assert await prove(ledger) == count

    async def test_a_conflict_tells_both_versions(self, ledger: Ledger) -> None:
        await write(ledger, draft(), draft())
        with pytest.raises(VersionConflict, match=r"version 2.*expected 1") as conflict:
            await ledger.append([batch(draft(), expected_version=1)])
        assert (conflict.value.stream_id, conflict.value.expected, conflict.value.actual) == (STREAM.stream_id, 1, 2)

    async def test_a_conflicting_append_writes_nothing(self, ledger: Ledger) -> None:
        await write(ledger, draft())
        before = await ledger.ledger_head()
        with pytest.raises(VersionConflict):
            await ledger.append([batch(*keyed("a"), stream=STAGE), batch(*keyed("b"), expected_version=7)])
        assert await ledger.ledger_head() == before
        assert await ledger.head(STAGE) is None
        await ledger.append([batch(*keyed("a"), stream=STAGE), batch(*keyed("b"), expected_version=1)])
        assert await prove(ledger) == 3

    async def test_of_two_writers_with_one_expectation_one_wins(self, ledger: Ledger) -> None:
        tries = [ledger.append([batch(draft(payload={"n": n}), expected_version=0)]) for n in range(8)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(outcome, VersionConflict) for outcome in outcomes) == 7
        assert await prove(ledger) == 1

    async def test_an_append_has_one_root(self, ledger: Ledger) -> None:
        with pytest.raises(InvalidEvent, match="one root"):
            await ledger.append([batch(draft()), batch(draft(execution_id=999_999), stream=NOBODY)])
        assert await ledger.position() == 0

    @pytest.mark.parametrize(
        "bad",
        [
            draft(payload={"big": "x" * MAX_PAYLOAD_BYTES}),
            draft(payload={"set": {"value": "x" * 5000}}),
            draft(payload={"nan": float("nan")}),
            draft(meta={"big": "x" * 17_000}),
            draft(principal=""),
            draft(node_name="lone \ud800"),
            draft(correlation_id="nul \0"),
            draft(execution_id=EXECUTION + 1),
            draft(tenant_id="globex"),
            draft(event_time="yesterday"),
            draft(attempt=-1),
            draft(command_id=Ref(9)),
            draft(payload_ref=msgspec.structs.replace(PAYLOAD_REF, uri="")),
            draft("stage.closed", payload={"seal": {}}),
        ],
        ids=lambda bad: str(bad.event_type),
    )
    async def test_a_draft_that_breaks_a_rule_writes_nothing(self, ledger: Ledger, bad: Draft) -> None:
        with pytest.raises(InvalidEvent):
            await ledger.append([batch(draft(), *keyed("k")), batch(bad)])
        assert await ledger.position() == 0
        assert await ledger.heads() == []
        await write(ledger, *keyed("k"))
        assert await prove(ledger) == 1

    async def test_a_clock_that_steps_back_changes_no_order(self, ledger: Ledger, clock: VirtualClock) -> None:
        before = await write(ledger, draft())
        clock.set(clock.now() - 3_600_000_000)
        after = [*await write(ledger, draft()), *await write(ledger, frame(), stream=STAGE)]
        clock.advance(7200)
        after += await write(ledger, draft())
        assert before[0].event_id < after[0].event_id < after[2].event_id
        assert before[0].ingest_time == after[0].ingest_time < after[2].ingest_time
        assert await prove(ledger) == 4

    async def test_tenants_do_not_share_streams(self, ledger: Ledger) -> None:
        await write(ledger, draft(), draft())
        await ledger.append([batch(draft(tenant_id="globex"), stream=OTHER_TENANT, expected_version=0)])
        assert [item.event.tenant_id for item in await ledger.read(STREAM)] == ["acme", "acme"]
        assert [item.event.tenant_id for item in await ledger.read_root(OTHER_TENANT)] == ["globex"]
        assert [item.record.tenant_id for item in await ledger.audit(root=OTHER_TENANT)] == ["globex"]
        assert await prove(ledger) == 3

    # --- idempotency

    async def test_a_retry_returns_what_the_first_try_wrote(self, ledger: Ledger, clock: VirtualClock) -> None:
        batches = [batch(*keyed("a", "b"), expected_version=0), batch(*keyed("c"), stream=STAGE, expected_version=0)]
        first = list(await ledger.append(batches))
        await write(ledger, draft())
        clock.advance(60)
        assert list(await ledger.append(batches)) == first
        assert await prove(ledger) == 4

    async def test_a_retry_may_hold_drafts_without_a_key(self, ledger: Ledger) -> None:
        drafts = [draft(payload={"n": 1}), *keyed("a"), draft(payload={"n": 2})]
        first = await write(ledger, *drafts)
        await write(ledger, draft())
        assert await write(ledger, *drafts) == first
        assert await prove(ledger) == 4

    async def test_keys_from_different_appends_find_their_own_events(self, ledger: Ledger) -> None:
        (first,) = await write(ledger, *keyed("a"))
        await write(ledger, draft())
        (second,) = await write(ledger, *keyed("b"))
        assert await write(ledger, *keyed("b", "a")) == [second, first]
        assert await prove(ledger) == 3

    async def test_a_known_key_beside_a_new_fact_without_one_is_refused(self, ledger: Ledger) -> None:
        await write(ledger, *keyed("a"))
        for _ in range(2):
            with pytest.raises(IdempotencyMismatch):
                await write(ledger, *keyed("a"), draft("step.exit"))
            await write(ledger, draft())
        assert await prove(ledger) == 3

    async def test_an_append_that_is_known_in_part_writes_nothing(self, ledger: Ledger) -> None:
        await write(ledger, *keyed("a", "b"))
        with pytest.raises(PartialDuplicate) as refused:
            await write(ledger, *keyed("a", "b", "c"))
        assert (refused.value.present, refused.value.missing) == (["a", "b"], ["c"])
        assert await prove(ledger) == 2

    @pytest.mark.parametrize(
        "change",
        [
            {"payload": {"said": "other"}},
            {"status": "FAILED"},
            {"event_type": "step.exit"},
            {"node_name": "load"},
            {"payload_ref": PAYLOAD_REF},
        ],
        ids=lambda change: next(iter(change)),
    )
    async def test_a_key_with_other_content_is_refused(self, ledger: Ledger, change: dict[str, Any]) -> None:
        (first,) = await write(ledger, *keyed("a"))
        with pytest.raises(IdempotencyMismatch) as refused:
            await write(ledger, msgspec.structs.replace(keyed("a")[0], **change))
        assert (refused.value.key, refused.value.event_id) == ("a", first.event_id)
        assert await prove(ledger) == 1

    async def test_a_key_in_another_stream_is_other_content(self, ledger: Ledger) -> None:
        await write(ledger, *keyed("a"))
        with pytest.raises(IdempotencyMismatch):
            await write(ledger, *keyed("a"), stream=STAGE)
        assert await prove(ledger) == 1

    async def test_a_key_stands_once_in_an_append(self, ledger: Ledger) -> None:
        with pytest.raises(InvalidEvent, match="idempotency_key"):
            await write(ledger, *keyed("a", "a"))
        assert await ledger.position() == 0

    async def test_keys_are_each_tenants_own(self, ledger: Ledger) -> None:
        await write(ledger, *keyed("a"))
        await write(ledger, *keyed("a", tenant_id="globex"), stream=OTHER_TENANT)
        with pytest.raises(IdempotencyMismatch):
            await write(ledger, draft(tenant_id="globex", idempotency_key="a"), stream=OTHER_TENANT)
        assert await prove(ledger) == 2

    async def test_of_many_equal_tries_at_once_one_is_written(self, ledger: Ledger) -> None:
        answers = await asyncio.gather(*(write(ledger, *keyed("a", "b")) for _ in range(10)))
        assert all(answer == answers[0] for answer in answers)
        assert await prove(ledger) == 2

    # --- reading

    async def test_a_stream_is_read_in_ranges(self, ledger: Ledger) -> None:
        await write(ledger, *[draft(payload={"n": n}) for n in range(1, 8)])

        async def versions(**bounds: int) -> list[int]:
            return [item.event.stream_version for item in await ledger.read(STREAM, **bounds)]

        assert await versions() == [1, 2, 3, 4, 5, 6, 7]
        assert await versions(after_version=5) == [6, 7]
        assert await versions(to_version=2) == [1, 2]
        assert await versions(to_version=0) == []
        assert await versions(after_version=2, to_version=5) == [3, 4, 5]
        assert await versions(after_version=2, limit=2) == [3, 4]
        assert await versions(after_version=7) == []
        assert await versions(limit=0) == []
        assert await ledger.read(NOBODY) == []

    async def test_a_sparse_stream_is_read_by_event_id(self, ledger: Ledger) -> None:
        events = await write(ledger, frame(), frame(), frame(), stream=STAGE)
        found = await ledger.read(STAGE, after_version=events[0].event_id, to_version=events[1].event_id)
        assert [item.event for item in found] == [events[1]]

    async def test_the_whole_log_is_read_in_ranges(self, ledger: Ledger) -> None:
        for _ in range(3):
            await ledger.append([batch(draft()), batch(frame(), stream=STAGE)])
        assert positions(await ledger.read_all()) == [1, 2, 3, 4, 5, 6]
        assert positions(await ledger.read_all(after_position=4)) == [5, 6]
        assert positions(await ledger.read_all(after_position=1, to_position=4, limit=2)) == [2, 3]
        assert positions(await ledger.read_all(to_position=0)) == []
        assert positions(await ledger.read_all(after_position=6)) == []
        assert positions(await ledger.read_all(after_position=600)) == []

    async def test_a_root_is_read_over_all_its_streams_in_commit_order(self, ledger: Ledger) -> None:
        other = Stream("acme", f"execution/{EXECUTION}0")
        await ledger.append([batch(draft()), batch(frame(), stream=STAGE)])
        await write(ledger, draft(execution_id=EXECUTION * 10), stream=other)
        await write(ledger, draft("worker.heartbeat"), stream=TELEMETRY)
        await write(ledger, draft(execution_id=None, aggregate_type="tenant"), stream=TENANT_STREAM)
        await write(ledger, frame(), stream=STAGE)
        assert positions(await ledger.read_root(STREAM)) == [1, 2, 4, 6]
        assert positions(await ledger.read_root(STREAM, after_position=1, to_position=4)) == [2, 4]
        assert positions(await ledger.read_root(STREAM, after_position=2, limit=1)) == [4]
        assert positions(await ledger.read_root(other)) == [3]
        assert positions(await ledger.read_root(TENANT_STREAM)) == [5]
        assert await ledger.read_root(NOBODY) == []
        spans = {STREAM: (1, 5), other: (0, 9), TENANT_STREAM: (0, 9), NOBODY: (0, 9)}
        found = await ledger.read_roots(spans, limit=2)
        assert {root: positions(items) for root, items in found.items()} == {
            STREAM: [2, 4], other: [3], TENANT_STREAM: [5], NOBODY: [],
        }  # fmt: skip
        assert positions((await ledger.read_roots({STREAM: (0, 9)}, limit=3))[STREAM]) == [1, 2, 4]
        assert await ledger.read_roots({}) == {}
        moved = await ledger.moved(after_position=1, to_position=5)
        assert {(one.root, one.position) for one in moved} == {(STREAM, 4), (other, 3), (TENANT_STREAM, 5)}
        assert {one.root for one in moved if one.execution_id is None} == {TENANT_STREAM}
        assert len({one.project_id for one in moved}) == 1
        assert await ledger.moved(after_position=6, to_position=9) == []

    async def test_an_event_is_found_by_its_id_within_its_root(self, ledger: Ledger) -> None:
        (event,) = await write(ledger, frame(), stream=STAGE)
        found = await ledger.find(STREAM, event.event_id)
        assert found is not None
        assert (found.position, found.event) == (1, event)
        assert await ledger.find(STREAM, event.event_id + 1) is None
        assert await ledger.find(OTHER_TENANT, event.event_id) is None
        assert await ledger.find(NOBODY, event.event_id) is None

    async def test_readers_see_a_gap_free_prefix_while_writers_run(self, ledger: Ledger) -> None:
        writers, appends = 12, 15

        async def writer(number: int) -> None:
            stream = Stream("acme", f"execution/{number + 1}")
            for _ in range(appends):
                await write(ledger, draft(execution_id=number + 1), draft(execution_id=number + 1), stream=stream)

        async def reader() -> list[Recorded]:
            seen: list[Recorded] = []
            while len(seen) < writers * appends * 2:
                page = await ledger.read_all(after_position=len(seen), limit=7)
                assert positions(page) == list(range(len(seen) + 1, len(seen) + 1 + len(page)))
                seen += page
                await asyncio.sleep(0)
            return seen

        reading = [asyncio.ensure_future(reader()) for _ in range(2)]
        await asyncio.gather(*(writer(number) for number in range(writers)))
        first, second = await asyncio.gather(*reading)
        assert first == second
        assert await prove(ledger) == len(first)

    # --- heads and audit

    async def test_heads_come_in_order_of_tenant_and_stream(self, ledger: Ledger) -> None:
        await write(ledger, draft(tenant_id="globex"), stream=OTHER_TENANT)
        await ledger.append(
            [batch(draft("worker.heartbeat"), stream=TELEMETRY), batch(draft()), batch(frame(), stream=STAGE)]
        )
        nested = [Stream("acme", "registry/acme/sales/model/a"), Stream("acme", "registry/acme/sales/model/a/b")]
        for stream in nested:
            await write(ledger, draft(execution_id=None, aggregate_type="resource"), stream=stream)
        heads = await ledger.heads()
        names = [(head.tenant_id, head.stream_id) for head in heads]
        assert names == sorted(names)
        assert len(names) == 6
        assert await ledger.heads(after=Stream(*names[1]), limit=2) == heads[2:4]
        assert [head.stream_id for head in await ledger.heads(root=STREAM)] == [
            STREAM.stream_id, STAGE.stream_id, TELEMETRY.stream_id,
        ]  # fmt: skip
        assert [head.stream_id for head in await ledger.heads(root=nested[0])] == [nested[0].stream_id]
        assert await prove(ledger) == 6

    async def test_heads_are_sealed_with_the_ledgers_key(self, ledger: Ledger) -> None:
        assert ledger.mac_key == KEY
        await write(ledger, draft())
        assert all(head.mac for head in await ledger.heads())
        assert (await ledger.ledger_head()).mac is not None

    async def test_audit_shows_the_bytes_that_were_hashed(self, ledger: Ledger) -> None:
        written = await write(ledger, draft(payload={"f": 0.1, "ü": [1e100, -0.0]}, payload_ref=PAYLOAD_REF), draft())
        items = await ledger.audit()
        assert [hashlib.sha256(item.record.body()).hexdigest() for item in items] == [
            event.envelope_checksum for event in written
        ]
        assert [item.chain_hash for item in items] == [event.chain_hash for event in written]
        assert await ledger.audit(after_position=1) == items[1:]
        assert await ledger.audit(limit=1) == items[:1]

    async def test_audit_of_a_root_covers_its_streams_only(self, ledger: Ledger) -> None:
        await ledger.append([batch(draft()), batch(frame(), stream=STAGE)])
        await write(ledger, draft(tenant_id="globex"), stream=OTHER_TENANT)
        assert positions(await audited(ledger, STREAM)) == [1, 2]

    async def test_sound_storage_has_nothing_to_say(self, ledger: Ledger) -> None:
        await write(ledger, draft())
        assert await ledger.check_storage() == []

    # --- seals

    async def test_a_finally_sealed_stream_accepts_nothing_more(self, ledger: Ledger) -> None:
        await write(ledger, frame(), frame(), stream=STAGE)
        await close_stage(ledger)
        with pytest.raises(StreamSealed):
            await ledger.append([batch(draft()), batch(frame(), stream=STAGE)])
        head = await ledger.head(STAGE)
        assert head is not None
        assert (head.sealed, head.count) == (True, 2)
        assert await prove(ledger) == 3

    async def test_a_retry_is_answered_even_after_the_seal(self, ledger: Ledger) -> None:
        drafts = [frame(idempotency_key="a")]
        first = await write(ledger, *drafts, stream=STAGE)
        await close_stage(ledger)
        assert await write(ledger, *drafts, stream=STAGE) == first

    async def test_a_seal_over_a_stale_count_is_a_conflict(self, ledger: Ledger) -> None:
        await write(ledger, frame(), stream=STAGE)
        payload = await seal_of(ledger, STAGE, final=True)
        await write(ledger, frame(), stream=STAGE)
        with pytest.raises(VersionConflict):
            await write(ledger, draft("stage.closed", aggregate_type="stage", stage_id=77, payload=payload))
        assert await ledger.head(STREAM) is None
        assert await prove(ledger) == 2

    async def test_a_seal_that_is_not_final_lets_the_stream_grow(self, ledger: Ledger) -> None:
        await write(ledger, frame(), stream=STAGE)
        await write(ledger, draft("stream.sealed", payload=await seal_of(ledger, STAGE, final=False)))
        await write(ledger, frame(), stream=STAGE)
        assert await prove(ledger) == 3

    async def test_an_empty_stream_can_be_sealed(self, ledger: Ledger) -> None:
        await close_stage(ledger)
        with pytest.raises(StreamSealed):
            await write(ledger, frame(), stream=STAGE)
        head = await ledger.head(STAGE)
        assert head is not None
        assert (head.sealed, head.count, head.version) == (True, 0, 0)
        assert await prove(ledger) == 1

    # --- adopt

    async def fill(self, ledger: Ledger) -> list[Envelope]:
        """A log with dense and sparse streams, keys, two tenants and a seal."""
        await ledger.append([batch(*keyed("a", "b"), expected_version=0), batch(frame(), frame(), stream=STAGE)])
        await write(ledger, *keyed("a", tenant_id="globex"), stream=OTHER_TENANT)
        await write(ledger, draft("worker.heartbeat"), stream=TELEMETRY)
        await close_stage(ledger)
        await write(ledger, *[draft(payload={"n": n / 3}) for n in range(4)])
        return await everything(ledger)

    async def test_an_adopted_log_is_the_same_log(self, ledger: Ledger, other: Ledger) -> None:
        events = await self.fill(ledger)
        assert await other.adopt(iter(events)) == Adopted(written=len(events), present=0)
        assert await everything(other) == events
        assert [item.record.body() for item in await audited(other)] == [
            item.record.body() for item in await audited(ledger)
        ]
        assert await other.heads() == await ledger.heads()
        assert await other.ledger_head() == await ledger.ledger_head()
        assert await prove(other) == len(events)

    async def test_adopting_again_is_harmless(self, ledger: Ledger, other: Ledger) -> None:
        events = await self.fill(ledger)
        await other.adopt(events)
        before = await other.ledger_head()
        assert await other.adopt(events) == Adopted(written=0, present=len(events))
        assert await other.adopt([]) == Adopted(written=0, present=0)
        assert await other.ledger_head() == before

    async def test_an_event_that_comes_twice_is_adopted_once(self, ledger: Ledger, other: Ledger) -> None:
        events = await self.fill(ledger)
        twice = [event for event in events for _ in range(2)]
        assert await other.adopt(twice) == Adopted(written=len(events), present=len(events))
        assert await other.adopt([*events, *events]) == Adopted(written=0, present=2 * len(events))
        assert await everything(other) == events

    async def test_a_longer_history_continues_a_shorter_one(self, ledger: Ledger, other: Ledger) -> None:
        events = await self.fill(ledger)
        for end in (3, 5, len(events)):
            await other.adopt(events[:end])
            assert await everything(other) == events[:end]
            await prove(other)

    async def test_adopted_keys_are_known(self, ledger: Ledger, other: Ledger) -> None:
        await self.fill(ledger)
        await other.adopt(await everything(ledger))
        written = [item.event for item in await other.read(STREAM, to_version=2)]
        assert await write(other, *keyed("a", "b")) == written
        (elsewhere,) = [item.event for item in await other.read(OTHER_TENANT)]
        assert await write(other, *keyed("a", tenant_id="globex"), stream=OTHER_TENANT) == [elsewhere]

    async def test_an_adopted_log_can_be_written_on(self, ledger: Ledger, other: Ledger) -> None:
        events = await self.fill(ledger)
        await other.adopt(events)
        with pytest.raises(StreamSealed):
            await write(other, frame(), stream=STAGE)
        await other.append([batch(draft(), expected_version=7)])
        assert await prove(other) == len(events) + 1

    async def test_a_history_that_diverges_is_refused_whole(self, ledger: Ledger, other: Ledger) -> None:
        await write(ledger, draft(payload={"n": 1}), draft(payload={"n": 2}), draft())
        await write(ledger, draft("worker.heartbeat"), stream=TELEMETRY)
        await write(other, draft(payload={"n": 9}))
        heartbeat, *_ = reversed(await everything(ledger))
        before = await other.ledger_head()
        with pytest.raises(IntegrityMismatch, match="histories differ"):
            await other.adopt([heartbeat, *await everything(ledger)])
        assert await other.ledger_head() == before
        assert await other.head(TELEMETRY) is None

    async def test_a_gap_is_refused_whole(self, ledger: Ledger, other: Ledger) -> None:
        first, _, third = await write(ledger, draft(), draft(), draft())
        with pytest.raises(NoetlError, match="version"):
            await other.adopt([first, third])
        assert await other.position() == 0
        assert await other.heads() == []

    async def test_a_changed_event_is_refused_whole(self, ledger: Ledger, other: Ledger) -> None:
        first, second = await write(ledger, draft(), draft())
        forged = msgspec.structs.replace(second, payload={"more": 1})
        with pytest.raises(IntegrityMismatch, match=str(second.event_id)):
            await other.adopt([first, forged])
        assert await other.position() == 0

    async def test_a_key_that_stands_for_another_event_is_refused_whole(self, ledger: Ledger, other: Ledger) -> None:
        await write(ledger, draft("worker.heartbeat", idempotency_key="a"), stream=TELEMETRY)
        await write(other, *keyed("a"))
        with pytest.raises(IdempotencyMismatch):
            await other.adopt(await everything(ledger))
        assert await prove(other) == 1

    async def test_an_iterable_that_fails_midway_leaves_nothing(self, ledger: Ledger, other: Ledger) -> None:
        await write(ledger, *[draft(payload={"n": n}) for n in range(1200)])
        events = await everything(ledger)

        def breaking() -> Iterator[Envelope]:
            yield from events[:1100]
            raise ValueError("torn file")

        with pytest.raises(ValueError, match="torn file"):
            await other.adopt(breaking())
        assert await other.position() == 0
        assert await other.heads() == []
        assert await other.adopt(iter(events)) == Adopted(written=1200, present=0)
        assert await prove(other) == 1200

    # --- subscribe

    async def test_a_subscriber_sees_what_was_there_and_what_comes(self, ledger: Ledger) -> None:
        await write(ledger, draft(), draft())
        events = ledger.subscribe()
        assert positions(await take(events, 2)) == [1, 2]
        waiting = asyncio.ensure_future(take(events, 2))
        await asyncio.sleep(0)
        await write(ledger, draft())
        await write(ledger, frame(), stream=STAGE)
        assert positions(await waiting) == [3, 4]
        await events.aclose()  # type: ignore[attr-defined]  # a generator, as far as anyone can tell

    async def test_a_subscriber_that_comes_back_misses_and_repeats_nothing(self, ledger: Ledger) -> None:
        appends = 40

        async def writer() -> None:
            for n in range(appends):
                await write(ledger, draft(payload={"n": n}), draft())

        async def subscriber() -> list[int]:
            seen: list[int] = []
            while len(seen) < appends * 2:
                events = ledger.subscribe(after_position=seen[-1] if seen else 0)
                seen += positions(await take(events, min(7, appends * 2 - len(seen))))
                await events.aclose()  # type: ignore[attr-defined]
            return seen

        first, second, _ = await asyncio.gather(subscriber(), subscriber(), writer())
        assert first == second == list(range(1, appends * 2 + 1))

    async def test_every_subscriber_is_woken(self, ledger: Ledger) -> None:
        waiting = [asyncio.ensure_future(take(ledger.subscribe(), 20)) for _ in range(5)]
        for _ in range(20):
            await write(ledger, draft())
        for seen in await asyncio.gather(*waiting):
            assert positions(seen) == list(range(1, 21))

    async def test_a_subscriber_ahead_of_the_log_waits_for_its_position(self, ledger: Ledger) -> None:
        waiting = asyncio.ensure_future(take(ledger.subscribe(after_position=2), 1))
        for _ in range(3):
            await write(ledger, draft())
        assert positions(await waiting) == [3]

    # --- close

    async def test_a_closed_ledger_answers_no_more(self, ledger: Ledger) -> None:
        await write(ledger, draft())
        waiting = asyncio.ensure_future(take(ledger.subscribe(after_position=1), 1))
        await asyncio.sleep(0)
        await ledger.close()
        await ledger.close()
        for call in (
            ledger.append([batch(draft())]),
            ledger.adopt([]),
            ledger.read(STREAM),
            ledger.read_all(),
            ledger.read_root(STREAM),
            ledger.find(STREAM, 1),
            ledger.position(),
            ledger.head(STREAM),
            ledger.heads(),
            ledger.ledger_head(),
            ledger.audit(),
            ledger.check_storage(),
            waiting,
        ):
            with pytest.raises(Unavailable, match="closed"):
                await call


class DurableLedgerContract(LedgerContract):
    """What a ledger that outlives its process must do besides."""

    async def test_keys_outlive_the_process(self, open_ledger: OpenLedger) -> None:
        ledger = await open_ledger("ledger")
        first = await write(ledger, *keyed("a", "b"))
        await ledger.close()
        again = await open_ledger("ledger")
        assert await write(again, *keyed("a", "b")) == first
        with pytest.raises(IdempotencyMismatch):
            await write(again, draft(idempotency_key="a"))
        assert await prove(again) == 2

    async def test_the_log_goes_on_after_a_restart(self, open_ledger: OpenLedger, clock: VirtualClock) -> None:
        ledger = await open_ledger("ledger")
        written = await write(ledger, draft(), draft())
        await ledger.close()
        clock.set(clock.now() - 60_000_000)
        again = await open_ledger("ledger")
        written += list(await again.append([batch(draft(), expected_version=2)]))
        assert await everything(again) == written
        assert await prove(again) == 3
