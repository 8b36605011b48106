"""Two histories of one stream: the one that a ledger has, and one that comes from elsewhere."""

from __future__ import annotations

from noetl.errors import IntegrityMismatch
from noetl.kernel.event import Envelope
from noetl.kernel.streams import is_dense

__all__ = ["is_the_same"]


def is_the_same(event: Envelope, found: str | None) -> bool:
    """Whether a stream that has come as far has this very event, by the checksum that was found at its version.

    A sparse stream may not have it yet. Raises IntegrityMismatch for another event in its place: a split history.
    """
    if found == event.envelope_checksum:
        return True
    if found is None and not is_dense(event.stream_id):
        return False
    raise IntegrityMismatch(
        f"event {event.event_id} is not the one this ledger has at version {event.stream_version} "
        f"of '{event.stream_id}': the two histories differ",
        hint="import into another --home to compare them",
    )
