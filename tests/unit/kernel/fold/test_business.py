from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from noetl.kernel.event import Envelope
from noetl.kernel.fold import State, apply
from noetl.kernel.fold.business import object_key
from noetl.kernel.fold.rows import BusinessObjectRow
from tests.unit.kernel.drafts import PAYLOAD_REF, envelope

ORDER = {"aggregate_type": "business_object", "aggregate_id": "order/7"}


def row_after(*events: Envelope) -> BusinessObjectRow:
    state = State("execution")
    for event in events:
        apply(state, event)
    row: BusinessObjectRow = state.surfaces["business_objects"].rows["order/7"]
    return row


@pytest.mark.parametrize(
    "fields",
    [
        ORDER,
        {"payload": {"business_object": {"type": "order", "id": "7"}}},
        {"meta": {"business_object": {"type": "order", "id": "7"}}},
        {**ORDER, "aggregate_id": "invoice/1", "payload": {"business_object": {"type": "order", "id": "7"}}},
    ],
)
def test_an_event_names_an_object_as_aggregate_or_in_payload_or_meta(fields: dict[str, Any]) -> None:
    assert object_key(envelope("step.enter", **fields)) == "order/7"


def test_most_events_name_none() -> None:
    assert object_key(envelope("step.enter")) is None


def test_an_object_is_created_with_what_is_said_of_it() -> None:
    payload = {"status": "PLACED", "version": 1, "attributes": {"amount": "12.50"}}
    row = row_after(envelope("business_object.created", event_id=5, payload=payload, payload_ref=PAYLOAD_REF, **ORDER))
    assert (row.object_id, row.object_type, row.status, row.version) == ("order/7", "order", "PLACED", 1)
    assert (row.attributes, row.set_by["attributes.amount"]) == ({"amount": "12.50"}, 5)
    assert (row.first_event_id, row.last_event_id, row.event_count) == (5, 5, 1)
    assert (row.payload_refs, row.latest_payload, row.deleted) == (1, PAYLOAD_REF.sha256, False)


def test_any_event_may_speak_of_an_object_known_or_not() -> None:
    said = {"type": "order", "id": "7", "status": "PACKED", "attributes": {"box": 3}}
    row = row_after(
        envelope("warehouse.scanned", event_id=5, payload={"business_object": said}),
        envelope("frame.committed", event_id=6, dense=False, frame_id=9, stage_id=77,
                 payload={"rows": 1, "business_object": {**said, "status": "SENT"}}),
    )  # fmt: skip
    assert (row.status, row.attributes, row.event_count) == ("SENT", {"box": 3}, 2)


def test_attributes_that_are_not_named_stay() -> None:
    row = row_after(
        envelope(event_id=1, payload={"attributes": {"a": 1, "b": 1}}, **ORDER),
        envelope(event_id=2, payload={"attributes": {"b": 2}}, **ORDER),
    )
    assert row.attributes == {"a": 1, "b": 2}


def test_a_deleted_object_may_come_back() -> None:
    deleted = envelope("business_object.deleted", event_id=2, **ORDER)
    back = envelope("business_object.updated", event_id=3, payload={"deleted": False}, **ORDER)
    assert row_after(deleted).deleted
    assert not row_after(deleted, back).deleted


def test_in_any_order_of_reading_the_latest_event_wins() -> None:
    placed = {"status": "A", "version": 1, "attributes": {"x": 1}}
    events = [
        envelope("business_object.created", event_id=1, payload=placed, **ORDER),
        envelope(event_id=2, payload={"status": "B", "attributes": {"x": 2, "y": 2}}, **ORDER),
        envelope("business_object.deleted", event_id=3, payload={"version": 3}, payload_ref=PAYLOAD_REF, **ORDER),
        envelope("business_object.updated", event_id=4, payload={"attributes": {"y": 4}, "deleted": False}, **ORDER),
    ]  # fmt: skip
    encoded = {row_after(*order).encoded() for order in permutations(events)}
    assert len(encoded) == 1
    row = row_after(*events)
    assert (row.status, row.version, row.deleted, row.attributes) == ("B", 3, False, {"x": 2, "y": 4})


def test_a_slash_in_a_type_does_not_make_two_objects_one() -> None:
    one = object_key(envelope("order.noted", payload={"business_object": {"type": "a/b", "id": "c"}}))
    other = object_key(envelope("order.noted", payload={"business_object": {"type": "a", "id": "b/c"}}))
    assert one != other
