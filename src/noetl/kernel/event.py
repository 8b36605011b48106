"""What an event is.

A producer writes a `Draft`; the ledger stamps it (id, version, time, place in the chain) and keeps an
`Envelope`. A `Record` is an envelope whose free-form parts are still the text that is stored: its
bytes are what the checksum covers, so verification never has to interpret what it verifies.

None of these can be part of a reference cycle (what they hold is plain JSON), so the garbage collector
is told to leave them alone: `gc=False`.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from noetl.errors import InvalidEvent
from noetl.kernel import canonical
from noetl.kernel.ids import MAX_ID
from noetl.kernel.time import is_canonical_time

__all__ = [
    "MAX_META_BYTES",
    "MAX_PAYLOAD_BYTES",
    "MAX_TEXT",
    "MAX_VALUE_BYTES",
    "Draft",
    "Envelope",
    "Facts",
    "IpcHint",
    "Json",
    "PayloadRef",
    "Record",
    "Recorded",
    "Ref",
    "check_text",
    "check_texts",
    "checksum_of",
    "content_digest",
    "record_of",
]

MAX_PAYLOAD_BYTES = 96 * 1024
MAX_META_BYTES = 16 * 1024
MAX_VALUE_BYTES = 4 * 1024
MAX_TEXT = 1024

Json = dict[str, Any]
Id = Annotated[int, Meta(ge=0, le=MAX_ID)]
Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Count = Annotated[int, Meta(ge=0, le=MAX_ID)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]  # `$` alone would allow a newline


class IpcHint(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Where a copy may still be in shared memory. Best effort: never the only copy."""

    node_id: Text
    shm_name: Text
    schema_digest: str | None = None
    byte_length: int | None = None
    row_count: int | None = None
    lease_expires_at: str | None = None
    producer: str | None = None


class PayloadRef(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Immutable bytes kept outside the event. The durable `uri` is mandatory; `ipc` only makes it faster."""

    uri: Text
    sha256: Sha256
    media_type: Text
    bytes: Count
    rows: Count | None = None
    schema_digest: str | None = None
    ipc: IpcHint | None = None
    key: Text | None = None
    """The object of a result. It is derived; recorded, it is found without knowing where its execution lives."""


class Ref(msgspec.Struct, frozen=True):
    """The event id of another draft of the same append, by its place counted over all batches.

    A command's id is the id of its own `command.issued`, which nobody knows before the ledger has
    stamped it; a draft may therefore refer to itself too.
    """

    index: int


class Facts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The plain fields of an event, in an order that the ledgers rely on.

    They are taken by position: with thirty fields that costs a tenth of naming them, and every append,
    read and replay pays it once per event.
    """

    event_id: Id
    tenant_id: Text
    organization_id: Text
    project_id: Text
    stream_id: Text
    stream_version: Id
    aggregate_type: Text
    aggregate_id: Text
    event_type: Text
    schema_name: Text
    schema_version: Annotated[int, Meta(ge=1, le=MAX_ID)]
    event_time: str
    ingest_time: str
    principal: Text
    producer: Text
    execution_id: Id | None = None
    causation_id: Id | None = None
    correlation_id: Text | None = None
    idempotency_key: Text | None = None
    parent_event_id: Id | None = None
    prev_event_id: Id | None = None
    command_id: Id | None = None
    stage_id: Id | None = None
    frame_id: Id | None = None
    parent_execution_id: Id | None = None
    node_name: Text | None = None
    status: Text | None = None
    attempt: Id | None = None


class Envelope(Facts, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One event as the ledger stamped it. Nothing about it ever changes."""

    payload: Json
    payload_ref: PayloadRef | None = None
    meta: Json
    envelope_checksum: Sha256
    chain_hash: Sha256 | None = None


class Record(Facts, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An event as stored: payload, payload_ref and meta are canonical JSON text, not yet interpreted."""

    payload: Raw
    payload_ref: Raw | UnsetType = UNSET
    meta: Raw

    def body(self) -> bytes:
        """The bytes that the envelope's checksum covers."""
        return _sorted.encode(self)


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An envelope and its place in one ledger's commit order. The place is not part of the event."""

    position: int
    event: Envelope


class Draft(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a producer says happened. The ledger adds who comes before it and when it arrived."""

    event_type: str
    tenant_id: str
    organization_id: str
    project_id: str
    principal: str
    producer: str
    execution_id: int | None = None
    aggregate_type: str = "execution"
    aggregate_id: str | None = None
    schema_name: str | None = None
    schema_version: int = 1
    event_time: str | None = None
    causation_id: int | Ref | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    parent_event_id: int | Ref | None = None
    command_id: int | Ref | None = None
    stage_id: int | Ref | None = None
    frame_id: int | Ref | None = None
    parent_execution_id: int | None = None
    node_name: str | None = None
    status: str | None = None
    attempt: int | None = None
    payload: Json = {}
    payload_ref: PayloadRef | None = None
    meta: Json = {}

    def validate(self) -> None:
        """Raise InvalidEvent naming the first field that breaks a rule of the envelope."""
        try:
            msgspec.convert(self, _Checked, from_attributes=True)
        except msgspec.ValidationError:
            self._name_fault()
        if self.event_time is not None and not is_canonical_time(self.event_time):
            raise InvalidEvent("event_time", f"'{self.event_time}' is not UTC with microseconds and 'Z'")
        if self.payload_ref is not None:
            _check_ref(self.payload_ref)

    def payload_json(self) -> bytes:
        """The payload's canonical bytes, within the limits an event has."""
        data = _free_form("payload", self.payload, MAX_PAYLOAD_BYTES, "move what the fold does not read to payload_ref")
        if len(data) > MAX_VALUE_BYTES:
            _check_values(self.payload)
        return data

    def meta_json(self) -> bytes:
        """The meta mapping's canonical bytes."""
        return _free_form("meta", self.meta, MAX_META_BYTES, "meta is for small facts about the event")

    def _name_fault(self) -> None:
        check_texts(self)
        for name in _IDS:
            value = getattr(self, name)
            if value is not None:
                _check_id(name, value)
        _check_id("schema_version", self.schema_version)
        raise InvalidEvent("schema_version", f"must be 1 or more, not {self.schema_version}")


class _Checked(msgspec.Struct, kw_only=True):
    """The rules of a draft's plain fields, in the form the compiled checker understands."""

    event_type: Text
    tenant_id: Text
    organization_id: Text
    project_id: Text
    principal: Text
    producer: Text
    execution_id: Id | None
    aggregate_type: Text
    aggregate_id: Text | None
    schema_name: Text | None
    schema_version: Annotated[int, Meta(ge=1, le=MAX_ID)]
    event_time: Text | None
    causation_id: Id | Ref | None
    correlation_id: Text | None
    idempotency_key: Text | None
    parent_event_id: Id | Ref | None
    command_id: Id | Ref | None
    stage_id: Id | Ref | None
    frame_id: Id | Ref | None
    parent_execution_id: Id | None
    node_name: Text | None
    status: Text | None
    attempt: Id | None


_sorted = msgspec.json.Encoder(order="sorted")
_REQUIRED_TEXT = (
    "event_type", "tenant_id", "organization_id", "project_id", "principal", "producer", "aggregate_type",
)  # fmt: skip
_OPTIONAL_TEXT = (
    "aggregate_id", "schema_name", "correlation_id", "idempotency_key", "node_name", "status", "event_time",
)  # fmt: skip
_IDS = (
    "execution_id", "causation_id", "parent_event_id", "command_id", "stage_id", "frame_id",
    "parent_execution_id", "attempt",
)  # fmt: skip


_facts_of = operator.attrgetter(*Facts.__struct_fields__)


def record_of(event: Envelope) -> Record:
    """The stored form of an envelope; its body gives the envelope's checksum again."""
    return Record(
        *_facts_of(event),
        payload=Raw(canonical.encode(event.payload)),
        payload_ref=UNSET if event.payload_ref is None else Raw(_sorted.encode(event.payload_ref)),
        meta=Raw(canonical.encode(event.meta)),
    )


def checksum_of(record: Record) -> str:
    """The envelope checksum: sha256 over the canonical bytes of everything but the checksums."""
    return hashlib.sha256(record.body()).hexdigest()


def content_digest(stream_id: str, fact: Draft | Envelope, payload: bytes) -> str:
    """What a retried draft must have in common with the first: the fact, not when and by whom it was told."""
    parts = (
        stream_id, fact.event_type, fact.schema_name or f"noetl.{fact.event_type}", str(fact.schema_version),
        str(fact.execution_id), fact.aggregate_type, _own_aggregate(fact, stream_id), fact.node_name or "",
        fact.status or "", str(fact.attempt),
        fact.payload_ref.sha256 if fact.payload_ref else "",
    )  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode() + b"\0" + payload).hexdigest()


def _own_aggregate(fact: Draft | Envelope, stream_id: str) -> str:
    """The aggregate's id where the producer chose it; one the ledger derived says nothing that ids do not say."""
    derived = (fact.execution_id, fact.command_id, fact.stage_id, fact.frame_id)
    chosen = fact.aggregate_id
    return "" if chosen is None or chosen == stream_id or chosen in map(str, derived) else chosen


def check_texts(fact: Draft | Envelope) -> None:
    """Raise InvalidEvent for the first text field that an event may not carry."""
    for name in _REQUIRED_TEXT:
        check_text(name, getattr(fact, name))
    for name in _OPTIONAL_TEXT:
        value = getattr(fact, name)
        if value is not None:
            check_text(name, value)


def check_text(name: str, value: object) -> None:
    """Raise InvalidEvent unless the value is a text an event may carry in a column of its own."""
    if not isinstance(value, str):
        raise InvalidEvent(name, f"must be text, not {type(value).__name__}")
    if not value:
        raise InvalidEvent(name, "must not be empty")
    if len(value) > MAX_TEXT:
        raise InvalidEvent(name, f"is {len(value)} characters long, the limit is {MAX_TEXT}")
    if "\0" in value:
        raise InvalidEvent(name, "must not contain NUL")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidEvent(name, "contains a lone surrogate") from None


def _check_id(name: str, value: object) -> None:
    if isinstance(value, Ref):
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidEvent(name, f"must be a whole number, not {type(value).__name__}")
    if not 0 <= value <= MAX_ID:
        raise InvalidEvent(name, f"{value} does not fit 63 bits")


def _check_ref(ref: PayloadRef) -> None:
    if not ref.uri:
        raise InvalidEvent(
            "payload_ref.uri",
            "a durable uri is mandatory",
            hint="shared memory is a hint, never the only copy: store the bytes first",
        )
    try:
        plain = msgspec.to_builtins(ref)
        msgspec.convert(plain, PayloadRef)
        canonical.encode(plain)
    except (msgspec.ValidationError, canonical.NotCanonical) as error:
        raise InvalidEvent("payload_ref", str(error)) from None


def _free_form(name: str, value: Json, limit: int, hint: str) -> bytes:
    if not isinstance(value, dict):
        raise InvalidEvent(name, f"must be a mapping, not {type(value).__name__}")
    if not value:
        return b"{}"
    try:
        data = canonical.encode(value)
    except canonical.NotCanonical as error:
        raise InvalidEvent(name, error.message, hint=error.hint) from None
    if len(data) > limit:
        raise InvalidEvent(name, f"is {len(data)} bytes of canonical JSON, the limit is {limit}", hint=hint)
    return data


def _check_values(payload: Json) -> None:
    """A large value of `set` or workload must be a reference: the fold keeps what it finds there."""
    for group in ("set", "workload"):
        values = payload.get(group)
        for key, value in values.items() if isinstance(values, dict) else ():
            size = len(canonical.encode(value))
            if size > MAX_VALUE_BYTES:
                raise InvalidEvent(
                    f"payload.{group}.{key}",
                    f"is {size} bytes, the limit for one value is {MAX_VALUE_BYTES}",
                    hint="store it and put its reference there",
                )
