"""Is an append new, or has an earlier try of it landed?

The caller of an append that got no answer sends it again. The idempotency keys of its drafts tell
whether the first try is in the log; every ledger looks them up and asks here what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from noetl.errors import IdempotencyMismatch, PartialDuplicate
from noetl.kernel import canonical
from noetl.kernel.event import Envelope, content_digest
from noetl.kernel.stamp import Prepared

__all__ = ["Key", "check_retry", "keys_of", "positions_of_retry"]

Keys = Mapping[str, tuple[int, str]]


class Key(msgspec.Struct, frozen=True, gc=False):
    """What a ledger remembers of an idempotency key: where its event is, and the digest of what it says."""

    position: int
    event_id: int
    content: str


def keys_of(prepared: Sequence[Prepared]) -> Keys:
    """The keys of an append, each with the place of its draft and the digest of what that says."""
    return {
        item.draft.idempotency_key: (index, content_digest(item.stream.stream_id, item.draft, item.payload))
        for index, item in enumerate(prepared)
        if item.draft.idempotency_key is not None
    }


def positions_of_retry(keys: Keys, count: int, look_up: Callable[[str], Key | None]) -> list[int] | None:
    """Where the `count` events of an earlier try stand, or None if this append is new.

    Raises PartialDuplicate or IdempotencyMismatch. Events of one append stand side by side, so a draft
    without a key is expected where its neighbours are; `check_retry` then says if it is there.
    """
    found: dict[str, Key] = {}
    for key, (_, content) in keys.items():
        known = look_up(key)
        if known is None:
            continue
        if known.content != content:
            raise IdempotencyMismatch(key, known.event_id)
        found[key] = known
    if not found:
        return None
    if len(found) < len(keys):
        raise PartialDuplicate(list(found), [key for key in keys if key not in found])
    places = {keys[key][0]: known.position for key, known in found.items()}
    first = min(position - index for index, position in places.items())
    return [places.get(index, first + index) for index in range(count)]


def check_retry(prepared: Sequence[Prepared], events: Sequence[Envelope | None]) -> list[Envelope]:
    """The events of the first try, given what stands at its positions.

    Raises IdempotencyMismatch unless the drafts without a key say what the events beside the keyed ones say.
    """
    pairs = list(zip(prepared, events, strict=True))
    same = [event for item, event in pairs if event is not None and _is_fact_of(item, event)]
    if len(same) < len(prepared):
        key = next(item.draft.idempotency_key for item in prepared if item.draft.idempotency_key is not None)
        raise IdempotencyMismatch(key, next((event.event_id for event in same if event.idempotency_key == key), 0))
    return same


def _is_fact_of(item: Prepared, event: Envelope) -> bool:
    if item.draft.idempotency_key is not None:
        return True  # the digest of a keyed fact has been compared already
    if (event.tenant_id, event.idempotency_key) != (item.draft.tenant_id, None):
        return False
    fact = content_digest(item.stream.stream_id, item.draft, item.payload)
    return fact == content_digest(event.stream_id, event, canonical.encode(event.payload))
