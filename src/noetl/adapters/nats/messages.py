"""An event in a message: its headers, and the way back."""

from __future__ import annotations

from nats.aio.msg import Msg

from noetl.archive.wire import decode_event
from noetl.errors import InvalidInput
from noetl.kernel.event import Recorded

__all__ = ["CHECKSUM", "CODEC", "POSITION", "position_of", "recorded_of"]

POSITION = "Noetl-Position"
CHECKSUM = "Noetl-Checksum"
CODEC = "Noetl-Codec"


def position_of(message: Msg) -> int | None:
    """The event's position in its ledger, or None for a message that is not ours."""
    text = (message.headers or {}).get(POSITION, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def recorded_of(message: Msg) -> Recorded:
    """The event of a message. Raises InvalidInput, saying why it is none."""
    position = position_of(message)
    if position is None:
        raise InvalidInput(f"the message has no header {POSITION}")
    event = decode_event(message.data, (message.headers or {}).get(CODEC, "json"))
    if event.envelope_checksum != (message.headers or {}).get(CHECKSUM):
        raise InvalidInput(f"event {event.event_id} is not the one that the header {CHECKSUM} names")
    return Recorded(position, event)
