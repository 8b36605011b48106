"""Seals: what a dense stream says about a sparse one.

Events of a sparse stream carry no chain hash, because many writers append to it at once. From time
to time its root stream records how many events it has and the Merkle root over them; from then on
they are as hard to change as the chained event that says so.
"""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.errors import InvalidEvent
from noetl.kernel.event import Envelope

__all__ = ["SEALING_TYPES", "Seal", "seal_in", "seal_of_payload"]

SEALING_TYPES = frozenset({"stage.closed", "stream.sealed"})


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a sparse stream at one moment. After a `final` seal it accepts nothing more."""

    stream_id: str
    root: str
    count: int
    first_event_id: int
    last_event_id: int
    first_position: int
    last_position: int
    peaks: tuple[str, ...] = ()
    final: bool = False


def seal_in(event: Envelope) -> Seal | None:
    """The seal an event carries, if it is one that seals."""
    return seal_of_payload(event.event_type, event.payload, event.event_id)


def seal_of_payload(event_type: str, payload: dict[str, Any], event_id: int | None = None) -> Seal | None:
    """The seal inside a payload that may not be stamped yet."""
    if event_type not in SEALING_TYPES or "seal" not in payload:
        return None
    try:
        return msgspec.convert(payload["seal"], Seal)
    except msgspec.ValidationError as error:
        raise InvalidEvent("payload.seal", str(error), event_id=event_id) from None
