"""Events whose payload is elsewhere: what is too large goes to the store, and comes back when it is wanted.

What moves, moves together as one JSON object, so one reference per event is enough. The reference is what the log
says and what its checksums cover; an envelope that was put together again is for reading, never for writing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel import canonical
from noetl.kernel.event import Draft, Envelope, Json, PayloadRef
from noetl.kernel.names import PayloadName, parse

__all__ = ["MARK", "externalize_envelope", "resolve_envelope"]

MARK = "payload_unresolved"
"""The key of `meta` that says why an event's payload could not be had."""

_JSON = "application/json"


class _Store(Protocol):
    async def store(self, data: bytes, *, media_type: str) -> PayloadRef: ...

    async def fetch(self, ref: PayloadRef) -> bytes: ...


async def externalize_envelope(draft: Draft, store: _Store, *, inline_max: int, keep: Collection[str] = ()) -> Draft:
    """The draft as it fits an event: a payload above `inline_max` bytes is stored, but for the keys to `keep`.

    Raises InvalidInput if the draft refers to something already: an event has one reference.
    """
    moved = {name: value for name, value in draft.payload.items() if name not in keep}
    if not moved or len(canonical.encode(draft.payload)) <= inline_max:
        return draft
    if draft.payload_ref is not None:
        raise InvalidInput(
            f"the payload of '{draft.event_type}' is larger than {inline_max} bytes, and it has a reference already",
            hint="store the large part first and refer to it from the payload",
        )
    ref = await store.store(canonical.encode(moved), media_type=_JSON)
    kept = {name: value for name, value in draft.payload.items() if name in keep}
    return msgspec.structs.replace(draft, payload=kept, payload_ref=ref)


async def resolve_envelope(envelope: Envelope, store: _Store, *, degraded: bool = False) -> Envelope:
    """The event with its whole payload. A reference to data, such as a result or a table, stays one.

    Raises NotFound or IntegrityMismatch if the payload cannot be had. With `degraded` the event keeps its reference
    then, and says so under `payload_unresolved` in its meta.
    """
    ref = envelope.payload_ref
    if ref is None or not _holds_payload(ref):
        return envelope
    try:
        moved = _moved(envelope, ref, await store.fetch(ref))
    except (NotFound, IntegrityMismatch) as error:
        if not degraded:
            raise
        return msgspec.structs.replace(envelope, meta={**envelope.meta, MARK: error.message})
    return msgspec.structs.replace(envelope, payload={**moved, **envelope.payload}, payload_ref=None)


def _holds_payload(ref: PayloadRef) -> bool:
    try:
        return ref.media_type == _JSON and isinstance(parse(ref.uri), PayloadName)
    except InvalidInput:
        return False


def _moved(envelope: Envelope, ref: PayloadRef, data: bytes) -> Json:
    try:
        moved = canonical.decode(data)
    except canonical.NotCanonical:
        moved = None
    if not isinstance(moved, dict):
        raise IntegrityMismatch(
            f"payload '{ref.uri}' of event {envelope.event_id} is not the JSON object that an event can hold",
            hint="its producer has stored something else under application/json; read it as bytes",
        )
    return moved
