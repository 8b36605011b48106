from __future__ import annotations

from copy import deepcopy

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl.errors import Corruption, InvalidEvent
from noetl.kernel.event import Envelope
from noetl.kernel.fold import EXECUTION_SURFACES, State, apply, keys_of, new_state
from noetl.kernel.fold.surface import checksum_of_rows
from tests.scribe import fold_all
from tests.unit.kernel.drafts import PAYLOAD_REF, STREAM, envelope
from tests.unit.kernel.fold.logs import interleaved, logs

property_of_logs = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def stored(state: State) -> dict[tuple[str, str], bytes]:
    """Every row's bytes, by surface and id."""
    return {(surface, key): row.encoded() for surface in state.surfaces for key, row in state.rows(surface)}


def loaded(category: str, rows: dict[tuple[str, str], bytes]) -> State:
    state = State(category)
    for (surface, _), row in rows.items():
        state.load(surface, row, "test")
    return state


class TestCounting:
    def test_every_event_is_counted_and_the_largest_id_kept(self) -> None:
        root = fold_all([envelope(event_id=5), envelope(event_id=9), envelope(event_id=7)]).root
        assert (root.event_count, root.last_event_id) == (3, 9)

    def test_the_scope_is_that_of_the_events(self) -> None:
        root = fold_all([envelope()]).root
        assert (root.tenant_id, root.organization_id, root.project_id) == ("acme", "retail", "sales")

    def test_unknown_types_are_counted_by_name(self) -> None:
        state = fold_all([envelope("weather.changed"), envelope("weather.changed"), envelope("invoice.paid")])
        assert state.root.unknown == {"weather.changed": 2, "invoice.paid": 1}
        assert state.root.event_count == 3

    def test_an_unknown_event_changes_no_other_row(self) -> None:
        state = fold_all([envelope("weather.changed", command_id=7, stage_id=8, frame_id=9, payload={"set": 1})])
        assert list(stored(state)) == [("execution", "root")]

    def test_payloads_are_counted_and_their_digests_summed(self) -> None:
        other = msgspec.structs.replace(PAYLOAD_REF, sha256="ff" * 32)
        root = fold_all([envelope(payload_ref=PAYLOAD_REF), envelope(payload_ref=other), envelope()]).root
        total = (int(PAYLOAD_REF.sha256, 16) + int("ff" * 32, 16)) % 2**256
        assert (root.payload_count, root.payload_digest) == (2, f"{total:064x}")

    def test_a_new_state_is_that_of_its_streams_category(self) -> None:
        assert tuple(new_state("execution/7/stage/9").surfaces) == EXECUTION_SURFACES
        assert new_state("tenant/acme").category == "tenant"

    def test_a_state_for_no_stream_is_refused(self) -> None:
        with pytest.raises(InvalidEvent):
            new_state("nonsense")

    def test_apply_returns_the_state_it_was_given(self) -> None:
        state = new_state(STREAM.stream_id)
        assert apply(state, envelope()) is state


class TestProperties:
    @property_of_logs
    @given(interleaved())
    def test_streams_of_one_execution_commute(self, both: tuple[list[Envelope], list[Envelope]]) -> None:
        committed, mixed = both
        assert stored(fold_all(committed)) == stored(fold_all(mixed))
        assert fold_all(committed).bundle() == fold_all(mixed).bundle()

    @property_of_logs
    @given(logs(), st.data())
    def test_a_prefix_and_the_rest_give_the_whole(self, log: list[Envelope], data: st.DataObject) -> None:
        cut = data.draw(st.integers(1, len(log)))
        resumed = loaded("execution", stored(fold_all(log[:cut])))
        assert fold_all(log[cut:], resumed).bundle() == fold_all(log).bundle()

    @property_of_logs
    @given(logs(), st.data())
    def test_kept_checksums_equal_those_of_the_rows(self, log: list[Envelope], data: st.DataObject) -> None:
        state = new_state(STREAM.stream_id)
        for event in log:
            apply(state, event)
            if data.draw(st.booleans()):
                state.bundle()
        assert state.bundle() == {
            surface: checksum_of_rows(surface, [row.encoded() for _, row in state.rows(surface)])
            for surface in EXECUTION_SURFACES
        }

    @property_of_logs
    @given(logs())
    def test_keys_of_names_every_row_that_apply_touches(self, log: list[Envelope]) -> None:
        whole = new_state(STREAM.stream_id)
        for event in log:
            rows = stored(whole)
            needed = [("execution", "root"), *keys_of(event)]
            part = loaded("execution", {key: rows[key] for key in needed if key in rows})
            apply(part, event)
            apply(whole, event)
            changed = {(surface, key): row.encoded() for surface, key, row in part.take_changed()}
            assert changed == {(surface, key): row.encoded() for surface, key, row in whole.take_changed()}
            assert set(changed) <= set(needed)

    @property_of_logs
    @given(logs())
    def test_events_stay_as_they_are(self, log: list[Envelope]) -> None:
        before = deepcopy(log)
        fold_all(log)
        assert log == before

    @property_of_logs
    @given(logs())
    def test_events_from_a_file_fold_like_events_from_memory(self, log: list[Envelope]) -> None:
        read = [msgspec.json.decode(msgspec.json.encode(event), type=Envelope) for event in log]
        assert fold_all(read).bundle() == fold_all(log).bundle()


class TestKeys:
    def test_the_rows_an_event_may_touch(self) -> None:
        event = envelope(
            "frame.committed", command_id=7, stage_id=8, frame_id=9, meta={"business_object": {"type": "a", "id": "b"}}
        )
        assert dict(keys_of(event)) == {"commands": "7", "stages": "8", "frames": "9", "business_objects": "a/b"}

    @pytest.mark.parametrize(
        ("event_type", "surface"),
        [("command.issued", "commands"), ("stage.opened", "stages"), ("frame.dispatched", "frames")],
    )
    def test_what_an_event_begins_is_named_after_it(self, event_type: str, surface: str) -> None:
        assert (surface, "500") in list(keys_of(envelope(event_type)))

    def test_a_loop_event_names_its_epoch(self) -> None:
        assert list(keys_of(envelope("loop.item", aggregate_type="loop", aggregate_id="load/2"))) == [
            ("loops", "load/2")
        ]

    def test_a_grant_is_named_by_its_aggregate(self) -> None:
        place = {"execution_id": None, "stream_id": "registry/acme/sales/model/churn", "aggregate_id": "g1"}
        assert list(keys_of(envelope("catalog.resource.grant_created", **place))) == [("grants", "g1")]

    @pytest.mark.parametrize("stream_id", ["registry/acme/sales/model/churn", "tenant/acme", "subscription/orders"])
    def test_only_surfaces_of_the_category_are_named(self, stream_id: str) -> None:
        named = {"business_object": {"type": "a", "id": "b"}}
        event = envelope("tenant.updated", execution_id=None, stream_id=stream_id, command_id=7, meta=named)
        assert list(keys_of(event)) == []


class TestLoading:
    @pytest.mark.parametrize("row", [b"{", b"[]", b'{"command_id":"seven"}', b'{"status":"PENDING"}', b"\xff"])
    def test_a_row_that_cannot_be_read_is_corruption(self, row: bytes) -> None:
        with pytest.raises(Corruption, match="snapshot 4: row of surface 'commands' cannot be read"):
            State("execution").load("commands", row, "snapshot 4")
