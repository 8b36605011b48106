"""Where references stand in an event, and what is none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.errors import InvalidEvent
from noetl.kernel.event import Envelope, PayloadRef
from noetl.runtime.references import mentions_of, references_of, with_references
from tests.unit.kernel.drafts import PAYLOAD_REF, SHA256, envelope

URI = PAYLOAD_REF.uri
REF = {"$ref": msgspec.to_builtins(PAYLOAD_REF)}
OTHER = "cd" * 32
RESULT = {
    "status": "ok",
    "reference": {"uri": URI, "ref": URI, "meta": {"sha256": SHA256, "bytes": 2, "content_type": "application/json"}},
}


def found_in(**fields: Any) -> list[str]:
    return [ref.sha256 for ref in references_of(envelope("call.done", **fields))]


def test_a_reference_of_the_event_itself() -> None:
    assert found_in(payload_ref=PAYLOAD_REF) == [SHA256]


@pytest.mark.parametrize("group", ["set", "ctx", "workload"])
def test_values_that_were_too_large(group: str) -> None:
    assert found_in(payload={group: {"ctx.a": REF, "ctx.b": {"deeper": [1, REF]}, "ctx.c": "plain"}}) == [SHA256] * 2


def test_a_whole_context_that_was_too_large() -> None:
    assert found_in(payload={"ctx": REF}) == [SHA256]


def test_a_result() -> None:
    assert found_in(payload={"result": RESULT}) == [SHA256]


def test_the_document() -> None:
    assert found_in(payload={"document": {"sha256": OTHER, "bytes": 12}}) == [OTHER]
    assert found_in(payload={"document": {"sha256": OTHER}}) == []  # an older log, which does not say how long


def test_what_users_wrote_is_no_reference() -> None:
    assert found_in(payload={"input": REF, "result": {"status": "ok", "context": REF}, "note": URI}) == []


def test_what_is_kept_elsewhere_stays_there() -> None:
    elsewhere = msgspec.structs.replace(PAYLOAD_REF, uri="s3://bucket/object")
    assert (
        found_in(payload_ref=elsewhere, payload={"result": {"reference": {"uri": "noetl://acme/sales/data/a@1"}}}) == []
    )


def test_a_reference_that_cannot_be_read_names_its_event() -> None:
    with pytest.raises(InvalidEvent, match=r"event 500, field 'payload\.set': not a reference"):
        found_in(payload={"set": {"ctx.a": {"$ref": {"uri": URI}}}})


def test_what_users_wrote_is_a_mention() -> None:
    event = envelope("call.done", payload={"result": {"status": "ok", "context": {"uri": URI, "more": [URI, 1]}}})
    assert [name.sha256 for name in mentions_of(event)] == [SHA256] * 2
    foreign = envelope("call.done", payload={"note": URI.replace("acme", "labs"), "text": f"see {URI}"})
    assert list(mentions_of(foreign)) == []


def test_payloads_get_other_names_and_nothing_else_changes() -> None:
    event = envelope(
        "call.done",
        payload={"result": RESULT, "ctx": REF, "set": {"ctx.a": [REF]}, "note": URI},
        payload_ref=PAYLOAD_REF,
    )
    moved = with_references(event, lambda name: msgspec.structs.replace(name, tenant="labs"))
    renamed = f"noetl://labs/sales/payloads/sha256/{SHA256}"
    assert {ref.uri for ref in references_of(moved)} == {renamed}
    assert moved.payload["result"]["reference"]["ref"] == renamed
    assert moved.payload["note"] == renamed
    assert isinstance(moved.payload_ref, PayloadRef)
    assert {ref.uri for ref in references_of(event)} == {URI}
    assert _without_uris(moved) == _without_uris(event)


def _without_uris(event: Envelope) -> bytes:
    return msgspec.json.encode(event).replace(b"noetl://labs", b"noetl://acme")
