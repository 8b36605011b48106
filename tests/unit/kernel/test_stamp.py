from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.errors import IntegrityMismatch, InvalidEvent, NoetlError, StreamSealed, VersionConflict
from noetl.kernel.chain import StreamHead, extend, genesis
from noetl.kernel.event import MAX_PAYLOAD_BYTES, Draft, Envelope, PayloadRef, Ref, checksum_of, record_of
from noetl.kernel.ids import MAX_ID, Snowflake
from noetl.kernel.stamp import Batch, Stream, adopt, prepare, stamp, streams_of
from noetl.kernel.streams import is_dense
from tests.scribe import START, Scribe
from tests.unit.kernel.drafts import PAYLOAD_REF, STAGE, STREAM, TELEMETRY, batch, draft

SECOND = 1_000_000
Heads = dict[Stream, StreamHead | None]


@pytest.fixture
def scribe() -> Scribe:
    return Scribe()


def closing(seal: dict[str, Any]) -> Draft:
    return draft("stage.closed", aggregate_type="stage", stage_id=77, payload={"seal": seal})


class TestDenseStreams:
    def test_versions_are_dense_from_1(self, scribe: Scribe) -> None:
        events = [*scribe.write(STREAM, draft(), draft()), *scribe.write(STREAM, draft())]
        assert [event.stream_version for event in events] == [1, 2, 3]

    def test_each_event_names_the_one_before_it(self, scribe: Scribe) -> None:
        first, second, third = [*scribe.write(STREAM, draft(), draft()), *scribe.write(STREAM, draft())]
        assert [first.prev_event_id, second.prev_event_id, third.prev_event_id] == [
            None, first.event_id, second.event_id,
        ]  # fmt: skip

    def test_events_are_chained_from_the_streams_name(self, scribe: Scribe) -> None:
        link = genesis(STREAM.stream_id)
        for event in [*scribe.write(STREAM, draft(), draft()), *scribe.write(STREAM, draft())]:
            link = extend(link, event.envelope_checksum)
            assert event.chain_hash == link
        head = scribe.heads[STREAM]
        assert head is not None
        assert (head.chain_hash, head.version, head.count) == (link, 3, 3)

    def test_the_checksum_covers_the_envelope(self, scribe: Scribe) -> None:
        event = scribe.write(STREAM, draft(payload={"a": [1, 2.5]}, payload_ref=PAYLOAD_REF))[0]
        assert checksum_of(record_of(event)) == event.envelope_checksum


class TestSparseStreams:
    def test_versions_are_event_ids(self, scribe: Scribe) -> None:
        events = scribe.write(STAGE, draft(stage_id=77), draft(stage_id=77))
        assert [event.stream_version for event in events] == [event.event_id for event in events]

    def test_events_carry_neither_predecessor_nor_chain(self, scribe: Scribe) -> None:
        events = scribe.write(TELEMETRY, draft(), draft())
        assert {(event.prev_event_id, event.chain_hash) for event in events} == {(None, None)}

    def test_the_head_chains_their_checksums_all_the_same(self, scribe: Scribe) -> None:
        one, two = scribe.write(TELEMETRY, draft(), draft())
        head = scribe.heads[TELEMETRY]
        assert head is not None
        link = extend(genesis(TELEMETRY.stream_id), one.envelope_checksum)
        assert head.chain_hash == extend(link, two.envelope_checksum)
        assert (head.version, head.count) == (two.event_id, 2)


class TestDefaults:
    def test_the_schema_is_named_after_the_type(self, scribe: Scribe) -> None:
        event = scribe.write(STREAM, draft("step.enter"))[0]
        assert (event.schema_name, event.schema_version) == ("noetl.step.enter", 1)

    def test_the_producers_time_is_kept_and_defaults_to_the_ledgers(self, scribe: Scribe) -> None:
        told, untold = scribe.write(STREAM, draft(event_time="2020-01-01T00:00:00.000000Z"), draft())
        assert told.event_time == "2020-01-01T00:00:00.000000Z"
        assert untold.event_time == untold.ingest_time == told.ingest_time == "2026-03-02T08:00:00.000000Z"

    @pytest.mark.parametrize(
        ("aggregate_type", "aggregate_id"),
        [("execution", "4101"), ("command", "5"), ("stage", "6"), ("frame", "7"), ("loop", "execution/4101")],
    )
    def test_the_aggregate_is_the_one_its_type_says(
        self, scribe: Scribe, aggregate_type: str, aggregate_id: str
    ) -> None:
        made = draft(aggregate_type=aggregate_type, command_id=5, stage_id=6, frame_id=7)
        assert scribe.write(STREAM, made)[0].aggregate_id == aggregate_id


class TestReferences:
    def test_a_draft_refers_to_another_by_its_place_over_all_batches(self, scribe: Scribe) -> None:
        opened, _, frame = scribe.append(
            batch(draft("stage.opened"), draft()), batch(draft("frame.dispatched", stage_id=Ref(0)), stream=STAGE)
        )
        assert frame.stage_id == opened.event_id

    def test_a_draft_may_refer_to_itself(self, scribe: Scribe) -> None:
        issued = scribe.write(STREAM, draft("command.issued", aggregate_type="command", command_id=Ref(0)))[0]
        assert issued.command_id == issued.event_id
        assert issued.aggregate_id == str(issued.event_id)

    def test_a_draft_may_refer_to_a_later_one(self, scribe: Scribe) -> None:
        first, second = scribe.write(STREAM, draft(causation_id=Ref(1)), draft())
        assert first.causation_id == second.event_id

    @pytest.mark.parametrize("name", ["causation_id", "parent_event_id", "command_id", "stage_id", "frame_id"])
    @pytest.mark.parametrize("index", [-1, 2])
    def test_a_reference_to_no_draft_is_refused_by_field(self, scribe: Scribe, name: str, index: int) -> None:
        with pytest.raises(InvalidEvent, match=f"refers to draft {index} of an append with 2") as refused:
            scribe.write(STREAM, draft(), msgspec.structs.replace(draft(), **{name: Ref(index)}))
        assert refused.value.field == name
        assert scribe.heads == {}


class TestOrder:
    def test_ids_increase_over_the_streams_of_one_append(self, scribe: Scribe) -> None:
        events = scribe.append(batch(draft(), draft()), batch(draft(), stream=STAGE), batch(draft(), stream=TELEMETRY))
        ids = [event.event_id for event in events]
        assert ids == sorted(set(ids))

    def test_ids_follow_the_last_of_the_stream_whatever_node_wrote_it(self) -> None:
        early, late = Scribe(node=1), Scribe(node=1023)
        late.now += 3600 * SECOND
        last = late.write(STREAM, draft())[0]
        early.heads = dict(late.heads)
        assert early.write(STREAM, draft())[0].event_id > last.event_id

    @settings(deadline=None, max_examples=50)
    @given(st.lists(st.tuples(st.integers(-50, 50), st.sampled_from([STREAM, STAGE, TELEMETRY])), max_size=25))
    def test_ids_and_times_never_go_back_within_a_stream(self, steps: list[tuple[int, Stream]]) -> None:
        scribe = Scribe()
        last: dict[Stream, tuple[int, str]] = {}
        for seconds, stream in steps:
            scribe.now += seconds * SECOND
            event = scribe.write(stream, draft())[0]
            before = last.get(stream, (0, ""))
            assert event.event_id > before[0]
            assert event.ingest_time >= before[1]
            last[stream] = (event.event_id, event.ingest_time)

    def test_a_clock_that_steps_back_repeats_the_last_time(self, scribe: Scribe) -> None:
        first = scribe.write(STREAM, draft())[0]
        scribe.now -= 60 * SECOND
        assert scribe.write(STREAM, draft())[0].ingest_time == first.ingest_time

    def test_the_same_calls_give_the_same_bytes(self) -> None:
        def one() -> list[Envelope]:
            return Scribe().append(batch(draft(), draft(command_id=Ref(0))), batch(draft(), stream=STAGE))

        assert one() == one()


class TestRefusals:
    def test_a_stream_that_has_moved_on_is_a_conflict(self, scribe: Scribe) -> None:
        scribe.write(STREAM, draft(), draft())
        with pytest.raises(VersionConflict) as refused:
            scribe.append(batch(draft(), expected_version=1))
        assert (refused.value.stream_id, refused.value.expected, refused.value.actual) == (STREAM.stream_id, 1, 2)

    def test_expecting_an_empty_stream_is_expecting_0(self, scribe: Scribe) -> None:
        scribe.append(batch(draft(), expected_version=0))
        with pytest.raises(VersionConflict):
            scribe.append(batch(draft(), expected_version=0))

    def test_a_conflict_in_one_stream_refuses_the_whole_append(self, scribe: Scribe) -> None:
        with pytest.raises(VersionConflict):
            scribe.append(batch(draft(), stream=STAGE), batch(draft(), expected_version=4))
        assert scribe.written == []

    @pytest.mark.parametrize(
        "others",
        [Stream("acme", "execution/9"), Stream("acme", "tenant/acme"), Stream("other", STREAM.stream_id)],
    )
    def test_one_append_has_one_root(self, others: Stream) -> None:
        with pytest.raises(InvalidEvent, match="one append may span the streams of one root only") as refused:
            prepare([batch(draft()), batch(draft(), stream=others)])
        assert refused.value.field == "stream_id"

    def test_an_event_belongs_to_the_streams_execution(self) -> None:
        with pytest.raises(InvalidEvent, match="9 does not belong in stream 'execution/4101'") as refused:
            prepare([batch(draft(execution_id=9))])
        assert refused.value.field == "execution_id"

    def test_an_event_of_a_tenant_belongs_to_no_execution(self) -> None:
        with pytest.raises(InvalidEvent, match="does not belong") as refused:
            prepare([batch(draft("tenant.created"), stream=Stream("acme", "tenant/acme"))])
        assert refused.value.field == "execution_id"

    def test_an_event_belongs_to_the_streams_tenant(self) -> None:
        with pytest.raises(InvalidEvent, match="'other' is not the stream's 'acme'") as refused:
            prepare([batch(draft(tenant_id="other"))])
        assert refused.value.field == "tenant_id"

    @pytest.mark.parametrize(
        "stream_id", ["nonsense", "execution/4101/stage/x", "registry/a/b/c/x\0y", "tenant/\ud800"]
    )
    def test_a_stream_has_a_name_that_is_one(self, stream_id: str) -> None:
        with pytest.raises(InvalidEvent) as refused:
            prepare([batch(draft(execution_id=None), stream=Stream("acme", stream_id))])
        assert refused.value.field == "stream_id"

    @pytest.mark.parametrize("name", ["principal", "producer", "node_name", "idempotency_key", "aggregate_id"])
    @pytest.mark.parametrize(("text", "reason"), [("a\0b", "NUL"), ("a\ud800", "lone surrogate")])
    def test_text_that_no_store_can_keep_is_refused_by_field(
        self, scribe: Scribe, name: str, text: str, reason: str
    ) -> None:
        with pytest.raises(InvalidEvent, match=reason) as refused:
            scribe.write(STREAM, draft(**{name: text}))
        assert refused.value.field == name

    def test_nul_inside_a_payload_is_the_users_own_business(self, scribe: Scribe) -> None:
        assert scribe.write(STREAM, draft(payload={"a": "x\0y"}))[0].payload == {"a": "x\0y"}

    def test_a_key_stands_for_one_draft(self) -> None:
        with pytest.raises(InvalidEvent, match="'k' stands for two drafts") as refused:
            prepare([batch(draft(idempotency_key="k")), batch(draft(idempotency_key="k"), stream=STAGE)])
        assert refused.value.field == "idempotency_key"

    def test_nothing_to_append_is_nothing_written(self) -> None:
        plan = stamp([], prepare([]), {}, Snowflake(7), START)
        assert (plan.events, plan.heads) == ([], {})


class TestSeals:
    def test_an_append_that_seals_needs_the_head_of_what_it_seals(self, scribe: Scribe) -> None:
        prepared = prepare([batch(closing(scribe.seal(STAGE, final=True)))])
        assert streams_of(prepared) == {STREAM, STAGE}

    def test_a_finally_sealed_stream_accepts_nothing_more(self, scribe: Scribe) -> None:
        scribe.write(STAGE, draft(), draft())
        scribe.write(STREAM, closing(scribe.seal(STAGE, final=True)))
        head = scribe.heads[STAGE]
        assert head is not None
        assert (head.sealed, head.count) == (True, 2)
        with pytest.raises(StreamSealed, match=STAGE.stream_id):
            scribe.write(STAGE, draft())

    def test_a_seal_that_is_not_final_lets_the_stream_grow(self, scribe: Scribe) -> None:
        scribe.write(TELEMETRY, draft())
        scribe.write(STREAM, draft("stream.sealed", payload={"seal": scribe.seal(TELEMETRY, final=False)}))
        scribe.write(TELEMETRY, draft())

    def test_an_event_that_slipped_in_after_the_count_is_a_conflict(self, scribe: Scribe) -> None:
        scribe.write(STAGE, draft())
        stale = scribe.seal(STAGE, final=True)
        scribe.write(STAGE, draft())
        with pytest.raises(VersionConflict) as refused:
            scribe.write(STREAM, closing(stale))
        assert (refused.value.stream_id, refused.value.expected, refused.value.actual) == (STAGE.stream_id, 1, 2)

    def test_a_stage_without_frames_is_sealed_empty(self, scribe: Scribe) -> None:
        scribe.write(STREAM, closing(scribe.seal(STAGE, final=True)))
        with pytest.raises(StreamSealed):
            scribe.write(STAGE, draft())

    def test_nothing_follows_a_seal_in_the_same_append(self, scribe: Scribe) -> None:
        with pytest.raises(StreamSealed):
            scribe.append(batch(closing(scribe.seal(STAGE, final=True))), batch(draft(), stream=STAGE))

    def test_what_comes_before_a_seal_in_the_same_append_is_counted(self, scribe: Scribe) -> None:
        seal = {**scribe.seal(STAGE, final=True), "count": 1}
        scribe.append(batch(draft(), stream=STAGE), batch(closing(seal)))
        head = scribe.heads[STAGE]
        assert head is not None
        assert head.sealed

    @pytest.mark.parametrize("target", ["execution/4101", "execution/9/stage/77", "tenant/acme", "subscription/a"])
    def test_only_a_sparse_stream_of_the_same_root_can_be_sealed(self, scribe: Scribe, target: str) -> None:
        seal = {**scribe.seal(STAGE, final=True), "stream_id": target}
        with pytest.raises(InvalidEvent, match="cannot be sealed from here") as refused:
            scribe.write(STREAM, closing(seal))
        assert refused.value.field == "payload.seal.stream_id"

    def test_a_broken_seal_is_found_before_anything_is_locked(self) -> None:
        with pytest.raises(InvalidEvent) as refused:
            prepare([batch(closing({"count": 1}))])
        assert refused.value.field == "payload.seal"


def example() -> list[Envelope]:
    """A log with every optional field in use: dense and sparse events, and a final seal."""
    scribe = Scribe()
    full = draft(
        causation_id=1, correlation_id="flow", parent_event_id=2, command_id=3, stage_id=77,
        frame_id=5, parent_execution_id=6, node_name="load", status="OK", attempt=1, payload={"a": 1},
        payload_ref=PAYLOAD_REF, meta={"b": 2}, event_time="2026-03-02T07:59:59.000000Z",
    )  # fmt: skip
    one, two, three, four = (msgspec.structs.replace(full, idempotency_key=f"key/{place}") for place in range(4))
    scribe.append(batch(one, two), batch(three, stream=STAGE))
    scribe.now += SECOND
    scribe.append(batch(four, stream=STAGE))
    scribe.write(STREAM, closing(scribe.seal(STAGE, final=True)))
    return scribe.written


EXAMPLE = example()


def adopt_all(events: list[Envelope]) -> Heads:
    heads: Heads = {}
    for event in events:
        adopt(event, heads)
    return heads


def restamped(event: Envelope, head: StreamHead | None, **fields: Any) -> Envelope:
    """A forger's work: fields changed, checksum and chain made to fit again."""
    forged = msgspec.structs.replace(event, **fields)
    checksum = checksum_of(record_of(forged))
    chain = extend(head.chain_hash if head else genesis(forged.stream_id), checksum)
    chain_hash = fields.get("chain_hash", chain if is_dense(forged.stream_id) else None)
    return msgspec.structs.replace(forged, envelope_checksum=checksum, chain_hash=chain_hash)


def other(value: Any) -> Any:
    """Something else of the same kind."""
    match value:
        case int():
            return value + 1
        case str() if value.startswith("2026-"):
            return "2025-01-01T00:00:00.000000Z"
        case str() if len(value) == 64:
            return "00" * 32
        case str():
            return value + "x"
        case dict():
            return {**value, "more": 1}
        case PayloadRef():
            return msgspec.structs.replace(value, bytes=value.bytes + 1)
    return 17


FIELDS = [*Envelope.__struct_fields__]


class TestAdopt:
    def test_what_was_stamped_is_adopted_unchanged(self) -> None:
        heads: Heads = {}
        assert [adopt(event, heads).event for event in EXAMPLE] == EXAMPLE

    def test_the_heads_are_those_of_the_ledger_that_stamped(self) -> None:
        scribe = Scribe()
        scribe.append(batch(draft(), draft()), batch(draft(), stream=STAGE))
        scribe.write(STREAM, closing(scribe.seal(STAGE, final=True)))
        assert adopt_all(scribe.written) == scribe.heads

    @pytest.mark.parametrize("place", range(len(EXAMPLE)))
    @pytest.mark.parametrize("name", FIELDS)
    def test_a_changed_field_is_refused_whichever_it_is(self, name: str, place: int) -> None:
        value = getattr(EXAMPLE[place], name)
        changed = msgspec.structs.replace(EXAMPLE[place], **{name: other(value)})
        heads = adopt_all(EXAMPLE[:place])
        with pytest.raises(NoetlError):
            adopt(changed, heads)
        assert heads == adopt_all(EXAMPLE[:place])

    @pytest.mark.parametrize("name", [name for name in FIELDS if getattr(EXAMPLE[1], name) is not None])
    def test_a_removed_field_is_refused(self, name: str) -> None:
        empty: Any = {} if name in {"payload", "meta"} else None
        changed = msgspec.structs.replace(EXAMPLE[1], **{name: empty})
        with pytest.raises((NoetlError, TypeError, AttributeError)):
            adopt(changed, adopt_all(EXAMPLE[:1]))

    def test_a_missing_event_is_a_gap(self) -> None:
        with pytest.raises(VersionConflict):
            adopt(EXAMPLE[1], {})

    def test_an_event_comes_once(self) -> None:
        with pytest.raises(InvalidEvent) as refused:
            adopt(EXAMPLE[0], adopt_all(EXAMPLE[:1]))
        assert refused.value.field == "event_id"

    def test_a_sealed_stream_adopts_nothing_more(self) -> None:
        heads = adopt_all(EXAMPLE)
        late = restamped(EXAMPLE[2], None, event_id=2**62, stream_version=2**62)
        with pytest.raises(StreamSealed):
            adopt(late, heads)

    def test_a_seal_that_counts_an_event_that_is_not_there_is_a_conflict(self) -> None:
        heads = adopt_all(EXAMPLE[:3])
        with pytest.raises(VersionConflict):
            adopt(EXAMPLE[4], heads)

    @pytest.mark.parametrize(
        ("place", "fields", "field"),
        [
            (1, {"event_id": EXAMPLE[0].event_id}, "event_id"),
            (1, {"execution_id": 9}, "execution_id"),
            (1, {"execution_id": None}, "execution_id"),
            (1, {"stream_id": "execution/x"}, "stream_id"),
            (1, {"event_time": "yesterday"}, "event_time"),
            (1, {"ingest_time": "2026-03-02T08:00:00Z"}, "ingest_time"),
            (1, {"ingest_time": "2026-03-02T07:00:00.000000Z"}, "ingest_time"),
            (3, {"stream_version": 2}, "stream_version"),
            (3, {"prev_event_id": 1}, "prev_event_id"),
            (3, {"chain_hash": "00" * 32}, "chain_hash"),
        ],
    )
    def test_a_well_summed_event_that_breaks_a_rule_is_refused_by_field(
        self, place: int, fields: dict[str, Any], field: str
    ) -> None:
        heads = adopt_all(EXAMPLE[:place])
        head = heads[Stream("acme", EXAMPLE[place].stream_id)]
        with pytest.raises(InvalidEvent) as refused:
            adopt(restamped(EXAMPLE[place], head, **fields), heads)
        assert refused.value.field == field

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"stream_version": 3}, VersionConflict),
            ({"prev_event_id": None}, IntegrityMismatch),
            ({"prev_event_id": 1}, IntegrityMismatch),
            ({"chain_hash": "00" * 32}, IntegrityMismatch),
        ],
    )
    def test_a_well_summed_event_out_of_its_place_is_refused(
        self, fields: dict[str, Any], error: type[NoetlError]
    ) -> None:
        heads = adopt_all(EXAMPLE[:1])
        with pytest.raises(error):
            adopt(restamped(EXAMPLE[1], heads[STREAM], **fields), heads)

    def test_without_a_key_a_forged_tail_is_only_found_at_the_head(self) -> None:
        """What adoption cannot see is what the MAC over the stream's head is for."""
        heads = adopt_all(EXAMPLE[:1])
        forged = restamped(EXAMPLE[1], heads[STREAM], principal="user:eve")
        adopt(forged, heads)
        assert heads[STREAM] != adopt_all(EXAMPLE[:2])[STREAM]


def test_a_batch_without_drafts_moves_nothing() -> None:
    empty: Batch = batch()
    plan = stamp([empty], prepare([empty]), {STREAM: None}, Snowflake(7), START)
    assert (plan.events, plan.heads) == ([], {})


class TestWhatNoLedgerOfOursWouldStamp:
    """Adopted events are held to the limits of drafts, and must leave room for ids to grow."""

    def adopted(self, **fields: Any) -> None:
        first = example()[0]
        adopt(restamped(first, None, **fields), {})

    def test_an_id_of_the_far_future_would_drag_every_later_id_along(self) -> None:
        with pytest.raises(InvalidEvent, match=r"field 'event_id'.*far future"):
            self.adopted(event_id=MAX_ID)

    def test_a_payload_beyond_the_limit_is_refused(self) -> None:
        with pytest.raises(InvalidEvent, match=r"field 'payload'.*larger than"):
            self.adopted(payload={"text": "x" * MAX_PAYLOAD_BYTES})

    def test_a_text_with_nul_is_refused_by_field(self) -> None:
        with pytest.raises(InvalidEvent, match=r"field 'node_name'.*NUL"):
            self.adopted(node_name="a\0b")


def test_an_envelope_does_not_share_its_payload_with_the_draft(scribe: Scribe) -> None:
    payload: dict[str, Any] = {"set": {"ctx.price": Decimal("1.10")}, "names": ("a", "b")}
    event = scribe.write(STREAM, draft(payload=payload))[0]
    payload["set"]["ctx.price"] = 2
    assert event.payload == {"set": {"ctx.price": "1.10"}, "names": ["a", "b"]}
