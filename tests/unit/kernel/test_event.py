from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.errors import InvalidEvent
from noetl.kernel import canonical
from noetl.kernel.event import (
    MAX_META_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_TEXT,
    MAX_VALUE_BYTES,
    Draft,
    Envelope,
    IpcHint,
    PayloadRef,
    Ref,
    checksum_of,
    content_digest,
    record_of,
)
from noetl.kernel.ids import MAX_ID
from tests.unit.kernel.drafts import PAYLOAD_REF, SHA256, draft, envelope

REQUIRED = ["event_type", "tenant_id", "organization_id", "project_id", "principal", "producer", "aggregate_type"]
OPTIONAL = ["aggregate_id", "schema_name", "correlation_id", "idempotency_key", "node_name", "status"]
NUMBERS = ["execution_id", "causation_id", "parent_event_id", "command_id", "stage_id", "frame_id",
           "parent_execution_id", "attempt"]  # fmt: skip
REFERENCES = ["causation_id", "parent_event_id", "command_id", "stage_id", "frame_id"]

nasty = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | nasty,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(nasty, inner, max_size=4),
    max_leaves=10,
)


def changed(name: str, value: object) -> Draft:
    """A draft with one field set to anything, as a careless caller would."""
    made: Draft = msgspec.structs.replace(draft(), **{name: value})
    return made


def fault(broken: Draft) -> InvalidEvent:
    with pytest.raises(InvalidEvent) as refused:
        broken.validate()
    assert f"'{refused.value.field}'" in refused.value.message
    return refused.value


class TestDraft:
    def test_the_plain_draft_is_valid(self) -> None:
        draft().validate()

    @pytest.mark.parametrize("name", REQUIRED + OPTIONAL)
    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            ("", "must not be empty"),
            (7, "must be text, not int"),
            ("x" * (MAX_TEXT + 1), f"is {MAX_TEXT + 1} characters long, the limit is {MAX_TEXT}"),
        ],
    )
    def test_a_text_that_breaks_a_rule_is_refused_by_field(self, name: str, value: object, reason: str) -> None:
        refused = fault(changed(name, value))
        assert (refused.field, refused.reason) == (name, reason)

    @pytest.mark.parametrize("name", REQUIRED)
    def test_what_is_mandatory_cannot_be_none(self, name: str) -> None:
        assert fault(changed(name, None)).field == name

    @pytest.mark.parametrize("name", REQUIRED + OPTIONAL)
    def test_a_text_may_be_as_long_as_the_limit(self, name: str) -> None:
        changed(name, "é" * MAX_TEXT).validate()

    @pytest.mark.parametrize("name", OPTIONAL + NUMBERS)
    def test_what_is_optional_may_be_none(self, name: str) -> None:
        changed(name, None).validate()

    @pytest.mark.parametrize("name", NUMBERS)
    @pytest.mark.parametrize("value", [-1, MAX_ID + 1, "7", 7.0, True])
    def test_a_number_that_is_no_id_is_refused_by_field(self, name: str, value: object) -> None:
        assert fault(changed(name, value)).field == name

    @pytest.mark.parametrize("name", NUMBERS)
    @pytest.mark.parametrize("value", [0, MAX_ID])
    def test_an_id_has_63_bits(self, name: str, value: int) -> None:
        changed(name, value).validate()

    @pytest.mark.parametrize("name", REFERENCES)
    def test_an_id_may_be_a_reference_to_a_draft(self, name: str) -> None:
        changed(name, Ref(0)).validate()

    @pytest.mark.parametrize("value", [0, -1, MAX_ID + 1, "1", 1.0, True, None])
    def test_a_schema_version_is_a_positive_number(self, value: object) -> None:
        assert fault(changed("schema_version", value)).field == "schema_version"

    @pytest.mark.parametrize("value", ["", "now", "2026-05-16T12:34:56Z", "2026-02-30T00:00:00.000000Z", 17])
    def test_an_event_time_has_one_spelling(self, value: object) -> None:
        assert fault(changed("event_time", value)).field == "event_time"

    def test_an_event_time_in_that_spelling_is_accepted(self) -> None:
        draft(event_time="2026-05-16T12:34:56.789000Z").validate()


class TestPayloadRef:
    def test_a_durable_reference_is_accepted(self) -> None:
        draft(payload_ref=PAYLOAD_REF).validate()

    def test_a_hint_beside_a_durable_uri_is_accepted(self) -> None:
        hint = IpcHint(node_id="n1", shm_name="noetl-17")
        draft(payload_ref=msgspec.structs.replace(PAYLOAD_REF, ipc=hint)).validate()

    def test_shared_memory_alone_is_refused(self) -> None:
        hint = IpcHint(node_id="n1", shm_name="noetl-17")
        refused = fault(draft(payload_ref=msgspec.structs.replace(PAYLOAD_REF, uri="", ipc=hint)))
        assert refused.field == "payload_ref.uri"
        assert "durable uri is mandatory" in refused.reason
        assert "never the only copy" in str(refused)

    def test_shared_memory_alone_is_refused_when_read(self) -> None:
        ref = {"ipc": {"node_id": "n1", "shm_name": "noetl-17"}, "sha256": SHA256, "media_type": "x", "bytes": 1}
        with pytest.raises(msgspec.ValidationError, match="missing required field `uri`"):
            msgspec.convert(ref, PayloadRef)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("sha256", "AB" * 32),
            ("sha256", "ab" * 31),
            ("sha256", "ab" * 32 + "\n"),
            ("media_type", ""),
            ("bytes", -1),
            ("rows", -1),
            ("uri", "noetl://\ud800"),
            ("uri", "x" * (MAX_TEXT + 1)),
        ],
    )
    def test_a_part_that_breaks_a_rule_is_named(self, name: str, value: object) -> None:
        refused = fault(draft(payload_ref=msgspec.structs.replace(PAYLOAD_REF, **{name: value})))
        assert refused.field.startswith("payload_ref")
        assert f"$.{name}" in refused.reason


class TestSizes:
    def payload_of(self, size: int, character: str = "x") -> dict[str, Any]:
        overhead = len(canonical.encode({"input": ""}))
        return {"input": character * ((size - overhead) // len(character.encode()))}

    def test_a_payload_of_exactly_the_limit_is_accepted(self) -> None:
        data = draft(payload=self.payload_of(MAX_PAYLOAD_BYTES)).payload_json()
        assert len(data) == MAX_PAYLOAD_BYTES == 96 * 1024

    def test_one_byte_more_is_refused(self) -> None:
        with pytest.raises(InvalidEvent, match=f"is {MAX_PAYLOAD_BYTES + 1} bytes") as refused:
            draft(payload=self.payload_of(MAX_PAYLOAD_BYTES + 1)).payload_json()
        assert refused.value.field == "payload"
        assert "payload_ref" in str(refused.value)

    def test_the_limit_counts_bytes_not_characters(self) -> None:
        payload = self.payload_of(MAX_PAYLOAD_BYTES + 2, "é")
        assert len(payload["input"]) < MAX_PAYLOAD_BYTES
        with pytest.raises(InvalidEvent, match="the limit is"):
            draft(payload=payload).payload_json()

    def test_meta_of_exactly_the_limit_is_accepted_and_one_byte_more_refused(self) -> None:
        assert len(draft(meta=self.payload_of(MAX_META_BYTES)).meta_json()) == MAX_META_BYTES
        with pytest.raises(InvalidEvent) as refused:
            draft(meta=self.payload_of(MAX_META_BYTES + 1)).meta_json()
        assert refused.value.field == "meta"

    @pytest.mark.parametrize("group", ["set", "workload"])
    def test_a_value_the_fold_keeps_may_have_4_kib(self, group: str) -> None:
        value = "x" * (MAX_VALUE_BYTES - 2)
        draft(payload={group: {"a": value, "b": value}}).payload_json()

    @pytest.mark.parametrize("group", ["set", "workload"])
    def test_a_larger_one_is_refused_by_key(self, group: str) -> None:
        value = "x" * (MAX_VALUE_BYTES - 1)
        with pytest.raises(InvalidEvent, match=f"is {MAX_VALUE_BYTES + 1} bytes") as refused:
            draft(payload={group: {"small": 1, "ctx.rows": value}}).payload_json()
        assert refused.value.field == f"payload.{group}.ctx.rows"
        assert "reference" in str(refused.value)

    @pytest.mark.parametrize("name", ["payload", "meta"])
    @pytest.mark.parametrize("value", [[], "text", None])
    def test_the_free_form_parts_are_mappings(self, name: str, value: object) -> None:
        broken = changed(name, value)
        with pytest.raises(InvalidEvent) as refused:
            broken.payload_json() if name == "payload" else broken.meta_json()
        assert refused.value.field == name

    def test_what_has_no_canonical_form_is_refused_with_its_place(self) -> None:
        with pytest.raises(InvalidEvent, match=r"\$\.result\.rate: nan has no JSON form") as refused:
            draft(payload={"result": {"rate": float("nan")}}).payload_json()
        assert refused.value.field == "payload"


def without_checksums(event: Envelope) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return {name: value for name, value in plain.items() if name not in {"envelope_checksum", "chain_hash"}}


class TestRecord:
    @settings(deadline=None)
    @given(nasty, nasty, nasty, json_values, json_values)
    def test_the_body_is_the_canonical_envelope_without_its_checksums(
        self, principal: str, node_name: str, key: str, value: object, other: object
    ) -> None:
        event = envelope(
            principal=principal,
            node_name=node_name,
            idempotency_key=key,
            aggregate_id=principal,
            payload={key: value, "result": None},
            meta={node_name: other},
            payload_ref=msgspec.structs.replace(PAYLOAD_REF, uri=key),
        )
        assert record_of(event).body() == canonical.encode(without_checksums(event))

    @settings(deadline=None)
    @given(nasty)
    def test_a_hint_is_part_of_the_body(self, text: str) -> None:
        hint = IpcHint(node_id=text, shm_name=text, byte_length=3)
        event = envelope(payload_ref=msgspec.structs.replace(PAYLOAD_REF, ipc=hint, rows=0))
        assert record_of(event).body() == canonical.encode(without_checksums(event))

    def test_fields_that_are_none_are_absent_and_nulls_inside_stay(self) -> None:
        body = record_of(envelope(payload={"result": None})).body()
        assert b'"payload":{"result":null}' in body
        assert b"node_name" not in body
        assert b"payload_ref" not in body

    def test_the_checksum_is_the_sha256_of_the_body(self) -> None:
        record = record_of(envelope())
        assert checksum_of(record) == hashlib.sha256(record.body()).hexdigest()

    def test_an_envelope_survives_json(self) -> None:
        event = envelope(payload={"a": [1, 2.5, None]}, payload_ref=PAYLOAD_REF, node_name="load")
        assert msgspec.json.decode(msgspec.json.encode(event), type=Envelope) == event

    @pytest.mark.parametrize(
        ("name", "value"),
        [("event_id", -1), ("principal", ""), ("schema_version", 0), ("envelope_checksum", "x"), ("attempt", 1.5)],
    )
    def test_a_field_that_breaks_a_rule_is_named_when_read(self, name: str, value: object) -> None:
        plain = {**msgspec.to_builtins(envelope()), name: value}
        with pytest.raises(msgspec.ValidationError, match=rf"\$\.{name}"):
            msgspec.convert(plain, Envelope)


class TestContentDigest:
    def digest(self, **fields: Any) -> str:
        made = draft(**fields)
        return content_digest("execution/4101", made, canonical.encode(made.payload))

    def test_the_same_fact_has_the_same_digest(self) -> None:
        assert self.digest(payload={"a": 1, "b": 2}) == self.digest(payload={"b": 2, "a": 1})

    @pytest.mark.parametrize(
        "fields",
        [
            {"event_time": "2026-05-16T12:34:56.789000Z"},
            {"producer": "noetl://tenant/acme/org/retail"},
            {"meta": {"worker_id": "w2"}},
            {"correlation_id": "order-7"},
            {"schema_name": "noetl.step.enter"},
        ],
    )
    def test_when_and_by_whom_it_was_told_does_not_matter(self, fields: dict[str, Any]) -> None:
        assert self.digest(**fields) == self.digest()

    @pytest.mark.parametrize(
        "fields",
        [
            {"event_type": "step.exit"},
            {"payload": {"a": 1}},
            {"status": "COMPLETED"},
            {"attempt": 2},
            {"node_name": "load"},
            {"schema_version": 2},
            {"aggregate_type": "command"},
            {"payload_ref": PAYLOAD_REF},
        ],
    )
    def test_another_fact_has_another_digest(self, fields: dict[str, Any]) -> None:
        assert self.digest(**fields) != self.digest()
