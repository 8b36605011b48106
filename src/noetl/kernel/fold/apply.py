"""The fold itself: one event into one state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from noetl.kernel.chain import MODULUS
from noetl.kernel.event import Envelope
from noetl.kernel.fold.business import apply_object, object_key
from noetl.kernel.fold.execution import HANDLERS, apply_set, command_key, frame_key, loop_key, stage_key
from noetl.kernel.fold.others import REGISTRY_HANDLERS, SUBSCRIPTION_HANDLERS, TENANT_HANDLERS
from noetl.kernel.fold.rows import RootRow
from noetl.kernel.fold.state import State
from noetl.kernel.streams import category_of
from noetl.kernel.vocabulary import canonical_type

__all__ = ["FOLD_VERSION", "apply", "keys_of", "new_state"]

FOLD_VERSION = 1
"""Raised whenever the same events would give other rows; a snapshot of another version is ignored."""

Handler = Callable[[State, Envelope], None]

_HANDLERS: Mapping[str, Mapping[str, Handler]] = {
    "execution": HANDLERS,
    "registry": REGISTRY_HANDLERS,
    "subscription": SUBSCRIPTION_HANDLERS,
    "tenant": TENANT_HANDLERS,
}


def new_state(stream_id: str) -> State:
    """The state before the first event of a stream's root."""
    return State(category_of(stream_id))


def apply(state: State, event: Envelope) -> State:
    """Fold one event into the state, which this function owns and may change in place.

    Total over known types: an event we do not know is counted and kept in the lineage, because a log
    written by a newer release must still replay here. A known event that is malformed is an error:
    guessing would make two replays of one log disagree.
    """
    root = state.root
    root.event_count += 1
    if event.event_id > root.last_event_id:
        root.last_event_id = event.event_id
    if root.tenant_id is None:
        root.tenant_id, root.organization_id, root.project_id = event.tenant_id, event.organization_id, event.project_id
    if event.payload_ref is not None:
        _count_payload(root, event.payload_ref.sha256)
    handlers = _HANDLERS[state.category]
    handler = handlers.get(event.event_type) or handlers.get(canonical_type(event.event_type))
    if handler is None:
        root.unknown[event.event_type] = root.unknown.get(event.event_type, 0) + 1
    else:
        handler(state, event)
    if state.category == "execution":
        if handler is not None and "set" in event.payload and event.chain_hash is not None:
            apply_set(root, event)
        name = object_key(event)
        if name is not None:
            apply_object(state, event, name)
    return state


def keys_of(event: Envelope) -> Iterator[tuple[str, str]]:
    """Surface and id of every row that `apply` may touch besides the root's own.

    A projector loads just these rows, so its cost follows the events, not the size of the execution.
    """
    for surface, key_of in _KEYS.get(event.stream_id.partition("/")[0], {}).items():
        key = key_of(event)
        if key is not None:
            yield surface, str(key)


def _loop_key(event: Envelope) -> str | None:
    return loop_key(event) if event.event_type.startswith("loop.") else None


def _grant_key(event: Envelope) -> str | None:
    return event.aggregate_id if event.event_type.endswith("grant_created") else None


_KEYS: Mapping[str, Mapping[str, Callable[[Envelope], int | str | None]]] = {
    "execution": {
        "commands": command_key,
        "stages": stage_key,
        "frames": frame_key,
        "loops": _loop_key,
        "business_objects": object_key,
    },
    "registry": {"grants": _grant_key},
}


def _count_payload(root: RootRow, sha256: str) -> None:
    root.payload_count += 1
    root.payload_digest = f"{(int(root.payload_digest or '0', 16) + int(sha256, 16)) % MODULUS:064x}"
