"""A replayed state as one document."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.kernel.plain import with_text_ids
from noetl.replay.service import Replayed

__all__ = ["document_of", "snapshot_of"]


def document_of(replayed: Replayed) -> dict[str, Any]:
    """The state, how it was reached, and the checksums that stand for it. Ids are decimal text."""
    state = replayed.state
    _, *rest = state.surfaces
    root = state.root.as_dict()
    document = {
        "stream_id": replayed.root.stream_id,
        **root,
        **{name: [row.as_dict() for _, row in state.rows(name)] for name in rest},
        "position": replayed.position,
        "projection_checksums": replayed.bundle(),
        "upcaster_registry_digest": replayed.registry_digest,
        "snapshot": snapshot_of(replayed),
        "checksum": replayed.checksum(),
    }
    for name, absent in (("status", None), ("event_count", 0), ("last_event_id", None)):
        document.setdefault(name, absent)  # a state before the first event has none of them
    if replayed.root.stream_id.startswith("execution/"):
        document["execution_id"] = int(replayed.root.stream_id.split("/")[1])
    if replayed.payloads is not None:
        document["payloads"] = msgspec.to_builtins(replayed.payloads)
    return with_text_ids(document)  # type: ignore[no-any-return]  # a mapping stays a mapping


def snapshot_of(replayed: Replayed) -> dict[str, Any]:
    """Whether a snapshot was used, which were not, and why."""
    return {
        "used": replayed.snapshot is not None,
        "position": replayed.snapshot.position if replayed.snapshot else None,
        "events_folded": replayed.events_folded,
        "rejected": msgspec.to_builtins(replayed.rejected),
        "why_not": replayed.no_snapshot,
    }
