"""From drafts to envelopes: the part of an append that needs no storage.

Every ledger reads the heads of the streams it is about to extend, calls `stamp`, and writes what comes
back in one transaction. What an adapter may decide is where bytes go, never what an event says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from noetl.errors import IntegrityMismatch, InvalidEvent, StreamSealed, VersionConflict
from noetl.kernel import canonical
from noetl.kernel.chain import StreamHead, extend, genesis
from noetl.kernel.event import (
    MAX_META_BYTES,
    MAX_PAYLOAD_BYTES,
    Draft,
    Envelope,
    Facts,
    Record,
    Ref,
    check_text,
    check_texts,
    checksum_of,
    record_of,
)
from noetl.kernel.ids import unix_ms
from noetl.kernel.seal import SEALING_TYPES, seal_in, seal_of_payload
from noetl.kernel.streams import category_of, execution_of, is_dense, root_of
from noetl.kernel.tail import Stream, Tail
from noetl.kernel.time import format_time, is_canonical_time

__all__ = ["Batch", "IdSource", "Plan", "Prepared", "Stamped", "Stamping", "Stream", "adopt", "prepare", "stamp",
           "streams_of", "streams_of_event"]  # fmt: skip

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_fields = msgspec.structs.astuple
_LATEST_MS = 3_471_292_800_000  # 2080: ids must go on growing after the latest one we accept
_AGGREGATES = {"execution": 0, "command": 1, "stage": 2, "frame": 3}  # which of an event's ids names the aggregate


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts for one stream. `expected_version` is the version the writer decided on; None does not care."""

    stream: Stream
    drafts: Sequence[Draft]
    expected_version: int | None = None


class IdSource(Protocol):
    """Where event ids come from: strictly increasing, and later than `after`."""

    def next(self, now_ms: int, after: int = 0) -> int: ...


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A draft that was found valid, with the canonical bytes of its free-form parts."""

    stream: Stream
    draft: Draft
    payload: bytes
    meta: bytes


class Stamped(msgspec.Struct, frozen=True, gc=False):
    """An envelope with its stored form, so that an adapter encodes nothing again."""

    event: Envelope
    record: Record
    facts: tuple[Any, ...]
    """The fields that both begin with."""


class Plan(msgspec.Struct, frozen=True):
    """What one append writes: events in order, and the heads as they will be. MACs are the writer's to add."""

    events: list[Stamped]
    heads: dict[Stream, StreamHead]


def prepare(batches: Sequence[Batch]) -> list[Prepared]:
    """Check every draft before the writer's lock is taken; raise naming the field, having written nothing."""
    roots = {(batch.stream.tenant_id, root_of(batch.stream.stream_id)) for batch in batches}
    if len(roots) > 1:
        names = ", ".join(sorted(root for _, root in roots))
        raise InvalidEvent("stream_id", f"one append may span the streams of one root only, not {names}")
    prepared = []
    keys: set[str] = set()
    for batch in batches:
        check_text("stream_id", batch.stream.stream_id)
        category_of(batch.stream.stream_id)
        owner = execution_of(batch.stream.stream_id)
        for draft in batch.drafts:
            draft.validate()
            if draft.tenant_id != batch.stream.tenant_id:
                raise InvalidEvent("tenant_id", f"'{draft.tenant_id}' is not the stream's '{batch.stream.tenant_id}'")
            if draft.execution_id != owner:
                raise _stranger(batch.stream.stream_id, draft.execution_id)
            if draft.idempotency_key is not None:
                if draft.idempotency_key in keys:
                    raise InvalidEvent("idempotency_key", f"'{draft.idempotency_key}' stands for two drafts")
                keys.add(draft.idempotency_key)
            if draft.event_type in SEALING_TYPES:
                seal_of_payload(draft.event_type, draft.payload)  # raises if it is none
            prepared.append(Prepared(batch.stream, draft, draft.payload_json(), draft.meta_json()))
    return prepared


def streams_of(prepared: Sequence[Prepared]) -> set[Stream]:
    """Every stream whose head an append will move: those it writes to, and those it seals."""
    streams = {item.stream for item in prepared}
    for item in prepared:
        if item.draft.event_type not in SEALING_TYPES:
            continue
        seal = seal_of_payload(item.draft.event_type, item.draft.payload)
        if seal is not None:
            streams.add(Stream(item.stream.tenant_id, seal.stream_id))
    return streams


def streams_of_event(event: Envelope) -> list[Stream]:
    """The same for an envelope that is to be adopted; its own stream comes first."""
    streams = [Stream(event.tenant_id, event.stream_id)]
    seal = seal_in(event)
    return streams if seal is None else [*streams, Stream(event.tenant_id, seal.stream_id)]


def stamp(
    batches: Sequence[Batch],
    prepared: Sequence[Prepared],
    heads: Mapping[Stream, StreamHead | None],
    ids: IdSource,
    now: int,
    last_id: int = 0,
) -> Plan:
    """Give every draft its id, version, time and place in the chain.

    Raises VersionConflict or StreamSealed. `now` is the ledger's clock in microseconds; ids and times
    never go back within a stream, whatever the clock does. `last_id` is the highest id in any stream of
    the root: an id names one event of an execution, also after a restart on a clock that was set back.
    """
    stamping = Stamping(batches, prepared, heads, ids, now, last_id)
    return Plan(list(stamping), stamping.heads())


class Stamping:
    """The same, one event after the other, for a ledger that sends the first while it stamps the next."""

    def __init__(
        self,
        batches: Sequence[Batch],
        prepared: Sequence[Prepared],
        heads: Mapping[Stream, StreamHead | None],
        ids: IdSource,
        now: int,
        last_id: int = 0,
    ) -> None:
        tails = {stream: Tail(stream, head) for stream, head in heads.items()}
        for batch in batches:
            version = tails[batch.stream].version if batch.stream in tails else 0
            if batch.expected_version not in (None, version):
                raise VersionConflict(batch.stream.stream_id, batch.expected_version, version)
        floor = max((tail.event_id for tail in tails.values()), default=0)
        floor = max(floor, last_id)
        self._prepared = prepared
        self._tails = tails
        self._ingest_time = max([format_time(now), *(tail.ingest_time for tail in tails.values())])
        self._event_ids = [ids.next(now // 1000, floor) for _ in prepared]

    def __iter__(self) -> Iterator[Stamped]:
        event_ids, tails, ingest_time = self._event_ids, self._tails, self._ingest_time
        return (_stamp_one(item, event_ids, n, tails, ingest_time) for n, item in enumerate(self._prepared))

    def heads(self) -> dict[Stream, StreamHead]:
        """The heads as they will be, once every event is stamped."""
        return {stream: tail.head() for stream, tail in self._tails.items() if tail.moved}


def adopt(event: Envelope, heads: dict[Stream, StreamHead | None]) -> Stamped:
    """Accept an envelope that another ledger stamped, unchanged, and move `heads` past it.

    Raises InvalidEvent for what breaks the envelope's rules, IntegrityMismatch for a wrong checksum or
    chain, VersionConflict for a gap.
    """
    record = record_of(event)
    stream = Stream(event.tenant_id, event.stream_id)
    head = heads.get(stream)
    _check_adopted(event, record, head)
    tail = Tail(stream, head)
    tail.push(event.event_id, bytes.fromhex(event.envelope_checksum), event.ingest_time)
    seal = seal_in(event)
    if seal is not None and seal.final:
        target = Stream(stream.tenant_id, seal.stream_id)
        sealed = Tail(target, heads.get(target))
        sealed.seal(seal.count, event.stream_id, event.ingest_time)
        heads[target] = sealed.head()
    heads[stream] = tail.head()
    return Stamped(event, record, msgspec.structs.astuple(record)[: len(Facts.__struct_fields__)])


def _stranger(stream_id: str, execution_id: int | None, event_id: int | None = None) -> InvalidEvent:
    return InvalidEvent("execution_id", f"{execution_id} does not belong in stream '{stream_id}'", event_id=event_id)


def _stamp_one(
    item: Prepared, event_ids: Sequence[int], index: int, tails: Mapping[Stream, Tail], ingest_time: str
) -> Stamped:
    draft, tail = item.draft, tails[item.stream]
    facts = _facts(item, event_ids, index, tail, ingest_time)
    ref = UNSET if draft.payload_ref is None else Raw(canonical.encode(msgspec.to_builtins(draft.payload_ref)))
    record = Record(*facts, payload=Raw(item.payload), payload_ref=ref, meta=Raw(item.meta))
    checksum = _checksum(record, draft)
    chain_hash = tail.push(record.event_id, checksum, ingest_time)
    if draft.event_type in SEALING_TYPES:
        seal = seal_of_payload(draft.event_type, draft.payload)
        if seal is not None and seal.final:
            tails[Stream(item.stream.tenant_id, seal.stream_id)].seal(seal.count, item.stream.stream_id, ingest_time)
    event = Envelope(
        *facts,
        payload=_read_back(item.payload),
        payload_ref=draft.payload_ref,
        meta=_read_back(item.meta),
        envelope_checksum=checksum.hex(),
        chain_hash=chain_hash if tail.dense else None,
    )
    return Stamped(event, record, facts)


def _read_back(data: bytes) -> dict[str, Any]:
    """A payload as a reader will find it, out of the caller's reach."""
    return {} if data == b"{}" else _decode(data)


def _facts(item: Prepared, event_ids: Sequence[int], index: int, tail: Tail, ingest_time: str) -> tuple[Any, ...]:
    """The fields of `Facts`, in its order."""
    event_id, dense = event_ids[index], tail.dense
    (
        event_type, tenant_id, organization_id, project_id, principal, producer, execution_id, aggregate_type,
        aggregate_id, schema_name, schema_version, event_time, causation_id, correlation_id, idempotency_key,
        parent_event_id, command_id, stage_id, frame_id, parent_execution_id, node_name, status, attempt, _, _, _,
    ) = _fields(item.draft)  # fmt: skip
    # Most of them are None or numbers: what a class is, is known sooner than what it descends from.
    if command_id.__class__ is Ref:
        command_id = _resolved("command_id", command_id, event_ids)
    if stage_id.__class__ is Ref:
        stage_id = _resolved("stage_id", stage_id, event_ids)
    if frame_id.__class__ is Ref:
        frame_id = _resolved("frame_id", frame_id, event_ids)
    if causation_id.__class__ is Ref:
        causation_id = _resolved("causation_id", causation_id, event_ids)
    if parent_event_id.__class__ is Ref:
        parent_event_id = _resolved("parent_event_id", parent_event_id, event_ids)
    if not aggregate_id:
        aggregate_id = _aggregate_id(aggregate_type, item.stream, execution_id, command_id, stage_id, frame_id)
    return (
        event_id, tenant_id, organization_id, project_id, item.stream.stream_id,
        tail.version + 1 if dense else event_id, aggregate_type, aggregate_id, event_type,
        schema_name or f"noetl.{event_type}", schema_version, event_time or ingest_time, ingest_time, principal,
        producer, execution_id, causation_id, correlation_id, idempotency_key, parent_event_id,
        tail.previous if dense else None, command_id, stage_id, frame_id, parent_execution_id, node_name, status,
        attempt,
    )  # fmt: skip


def _checksum(record: Record, draft: Draft) -> bytes:
    """The record's checksum. Its bytes also show the faults that only an encoder meets."""
    try:
        body = record.body()
    except UnicodeEncodeError:
        check_texts(draft)
        raise
    if b"\\u0000" in body:
        check_texts(draft)
    return hashlib.sha256(body).digest()


def _resolved(name: str, ref: Ref, event_ids: Sequence[int]) -> int:
    if not 0 <= ref.index < len(event_ids):
        raise InvalidEvent(name, f"refers to draft {ref.index} of an append with {len(event_ids)}")
    return event_ids[ref.index]


def _aggregate_id(aggregate_type: str, stream: Stream, *ids: int | None) -> str:
    place = _AGGREGATES.get(aggregate_type)
    value = None if place is None else ids[place]
    return stream.stream_id if value is None else str(value)


def _check_adopted(event: Envelope, record: Record, head: StreamHead | None) -> None:
    category_of(event.stream_id)
    if event.execution_id != execution_of(event.stream_id):
        raise _stranger(event.stream_id, event.execution_id, event.event_id)
    for name in ("event_time", "ingest_time"):
        if not is_canonical_time(getattr(event, name)):
            raise InvalidEvent(name, f"'{getattr(event, name)}' is not UTC with microseconds", event_id=event.event_id)
    _check_limits(event, record)
    checksum = checksum_of(record)
    if checksum != event.envelope_checksum:
        raise IntegrityMismatch(f"event {event.event_id} does not match its checksum", hint="the file was changed")
    if head is not None and head.sealed:
        raise StreamSealed(event.stream_id)
    if head is not None and event.event_id <= head.event_id:
        raise InvalidEvent(
            "event_id", f"does not follow {head.event_id} in '{event.stream_id}'", event_id=event.event_id
        )
    if head is not None and event.ingest_time < head.ingest_time:
        raise InvalidEvent("ingest_time", f"is earlier than {head.ingest_time}", event_id=event.event_id)
    if is_dense(event.stream_id):
        _check_link(event, checksum, head)
    else:
        _check_sparse(event)


def _check_limits(event: Envelope, record: Record) -> None:
    """What no ledger of ours would have stamped, though it may be well-formed."""
    for name, data, limit in (("payload", record.payload, MAX_PAYLOAD_BYTES), ("meta", record.meta, MAX_META_BYTES)):
        if len(memoryview(data)) > limit:
            raise InvalidEvent(name, f"is larger than {limit} bytes of canonical JSON", event_id=event.event_id)
    if unix_ms(event.event_id) >= _LATEST_MS:
        raise InvalidEvent("event_id", "lies in the far future: every later id would have to follow it",
                           event_id=event.event_id)  # fmt: skip
    if b"\\u0000" in record.body():
        check_texts(event)


def _check_sparse(event: Envelope) -> None:
    if event.stream_version != event.event_id:
        raise InvalidEvent("stream_version", "a sparse stream numbers events by their id", event_id=event.event_id)
    for name in ("prev_event_id", "chain_hash"):
        if getattr(event, name) is not None:
            raise InvalidEvent(name, "belongs to dense streams only", event_id=event.event_id)


def _check_link(event: Envelope, checksum: str, head: StreamHead | None) -> None:
    version = head.version if head else 0
    if event.stream_version != version + 1:
        raise VersionConflict(event.stream_id, event.stream_version - 1, version)
    if event.prev_event_id != (head.event_id if head else None):
        raise IntegrityMismatch(f"event {event.event_id} does not name the event before it")
    if event.chain_hash != extend(head.chain_hash if head else genesis(event.stream_id), checksum):
        raise IntegrityMismatch(f"event {event.event_id} does not continue the hash chain of '{event.stream_id}'")
