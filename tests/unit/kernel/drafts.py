"""The plainest drafts that are valid, for tests that say what they change."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.kernel.event import Draft, Envelope, PayloadRef
from noetl.kernel.stamp import Batch, Stream

EXECUTION = 4101
STREAM = Stream("acme", f"execution/{EXECUTION}")
STAGE = Stream("acme", f"execution/{EXECUTION}/stage/77")
TELEMETRY = Stream("acme", f"execution/{EXECUTION}/telemetry")
SHA256 = "ab" * 32
PAYLOAD_REF = PayloadRef(
    uri=f"noetl://acme/sales/payloads/sha256/{SHA256}", sha256=SHA256, media_type="application/json", bytes=2
)

_PLAIN = Draft(
    event_type="step.enter",
    tenant_id="acme",
    organization_id="retail",
    project_id="sales",
    principal="user:ada",
    producer="noetl://tenant/acme",
    execution_id=EXECUTION,
)


def draft(event_type: str = "step.enter", **fields: Any) -> Draft:
    """A valid draft for the execution's own streams, with some fields changed."""
    return msgspec.structs.replace(_PLAIN, event_type=event_type, **fields)


def batch(*drafts: Draft, stream: Stream = STREAM, expected_version: int | None = None) -> Batch:
    """A batch for one stream."""
    return Batch(stream=stream, drafts=drafts, expected_version=expected_version)


def envelope(event_type: str = "step.enter", **fields: Any) -> Envelope:
    """An envelope as the fold reads it; `dense=False` is one of a sparse stream. The fold verifies no checksum."""
    dense = fields.pop("dense", True)
    facts: dict[str, Any] = {
        "event_id": 500,
        "tenant_id": "acme",
        "organization_id": "retail",
        "project_id": "sales",
        "execution_id": EXECUTION,
        "stream_id": STREAM.stream_id,
        "stream_version": 1,
        "aggregate_type": "execution",
        "aggregate_id": str(EXECUTION),
        "schema_name": f"noetl.{event_type}",
        "schema_version": 1,
        "event_time": "2026-03-02T08:00:00.000000Z",
        "ingest_time": "2026-03-02T08:00:00.000000Z",
        "principal": "user:ada",
        "producer": "noetl://tenant/acme",
        "payload": {},
        "meta": {},
        "envelope_checksum": SHA256,
        "chain_hash": SHA256 if dense else None,
    }
    return Envelope(**{**facts, "event_type": event_type, **fields})
