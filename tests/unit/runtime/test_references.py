"""Where references stand in an event, and what is none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.errors import InvalidEvent
from noetl.kernel.event import Envelope, PayloadRef
from noetl.kernel.names import Home, ResultCoordinates
from noetl.payloads.results import JSON
from noetl.payloads.routes import routed
from noetl.runtime.references import mentions_of, object_of, references_of, with_references
from noetl.runtime.storage import About, Storage
from tests.unit.kernel.drafts import PAYLOAD_REF, SHA256, envelope

URI = PAYLOAD_REF.uri
REF = {"$ref": msgspec.to_builtins(PAYLOAD_REF)}
OTHER = "cd" * 32
PLACE = ResultCoordinates(tenant="acme", project="sales", execution_id=1 << 50, step="load", run=1, attempt=1)
ROOT = (1 << 50) - 3
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
    moved = with_references(event, "labs")
    renamed = f"noetl://labs/sales/payloads/sha256/{SHA256}"
    assert {ref.uri for ref in references_of(moved)} == {renamed}
    assert moved.payload["result"]["reference"]["ref"] == renamed
    assert moved.payload["note"] == renamed
    assert isinstance(moved.payload_ref, PayloadRef)
    assert {ref.uri for ref in references_of(event)} == {URI}
    assert _without_uris(moved) == _without_uris(event)


def result_at(tenant: str = "acme") -> PayloadRef:
    """A result that is kept in an object of its own."""
    home = Home(env="dev", region="local", cell="local-a", root=ROOT)
    place = msgspec.structs.replace(PLACE, tenant=tenant)
    return PayloadRef(uri=place.logical_uri(), sha256=OTHER, media_type=JSON, bytes=9, key=place.physical_key(home))


def with_result(tenant: str = "acme") -> Envelope:
    ref = result_at(tenant)
    left = Storage().left("ok", {"n": 1}, ref, About(size=9, preview="{}"))
    issued = {"steps": {"load": {"reference": left["reference"]}}}
    payload = {"result": left, "context": issued, "note": ref.uri, "key": ref.key}
    return envelope("call.done", payload=payload, payload_ref=ref)


def test_a_result_with_an_object_of_its_own() -> None:
    event = with_result()
    assert list(references_of(event)) == [result_at()] * 2
    assert {object_of(ref) for ref in references_of(event)} == {result_at().key}


def test_a_result_whose_object_nobody_says_is_kept_elsewhere() -> None:
    nowhere = msgspec.structs.replace(result_at(), key=None)
    assert list(references_of(envelope("call.done", payload_ref=nowhere))) == []


def test_results_get_other_names_and_other_keys() -> None:
    event = with_result()
    moved = with_references(event, "labs", {PLACE.execution_id: ROOT}.get)
    assert list(references_of(moved)) == [result_at("labs")] * 2
    assert moved.payload["context"]["steps"]["load"]["reference"]["key"] == result_at("labs").key
    assert moved.payload["note"] == result_at("labs").uri
    assert moved.payload["key"] == event.payload["key"]  # a text of somebody's


def test_a_route_is_kept() -> None:
    ref = msgspec.structs.replace(result_at(), key=routed("s3", result_at().key or ""))
    moved = with_references(envelope("call.done", payload_ref=ref), "labs", {PLACE.execution_id: ROOT}.get)
    assert moved.payload_ref is not None
    assert moved.payload_ref.key == routed("s3", result_at("labs").key or "")


def _without_uris(event: Envelope) -> bytes:
    return msgspec.json.encode(event).replace(b"noetl://labs", b"noetl://acme")
