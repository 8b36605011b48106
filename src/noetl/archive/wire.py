"""Events as the bytes of a message, in either codec. What comes out is what went in, checksum included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.event import Envelope

__all__ = ["CODECS", "Codec", "decode_event", "decode_events", "encode_event", "encode_events"]

Codec = Literal["json", "feather"]
CODECS: tuple[Codec, ...] = get_args(Codec)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Envelope)
_list_decoder = msgspec.json.Decoder(list[Envelope])


def encode_event(event: Envelope, codec: Codec = "json") -> bytes:
    """The event as the bytes of one message."""
    if codec == "json":
        return _encoder.encode(event)
    from noetl.archive.feather import feather_bytes  # pyarrow is heavy, and JSON does not need it

    return feather_bytes([event])


def decode_event(data: bytes, codec: str) -> Envelope:
    """The event of a message. Raises InvalidInput, saying why it is none."""
    if codec == "json":
        try:
            event = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the message is not an event: {error}") from None
    elif codec == "feather":
        from noetl.archive.feather import feather_events

        events = feather_events(data, "message")
        if len(events) != 1:
            raise InvalidInput(f"the message holds {len(events)} events, not one")
        (event,) = events
    else:
        raise InvalidInput(f"the message is written in '{codec[:40]}'", hint=f"known: {', '.join(CODECS)}")
    return event


def encode_events(events: Sequence[Envelope], codec: Codec = "json") -> bytes:
    """Several events as the bytes of one message."""
    if codec == "json":
        return _encoder.encode(events)
    from noetl.archive.feather import feather_bytes

    return feather_bytes(events)


def decode_events(data: bytes, codec: str) -> list[Envelope]:
    """The events of a message. Raises InvalidInput, saying why they are none."""
    if codec == "json":
        try:
            return _list_decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the message does not hold events: {error}") from None
    if codec == "feather":
        from noetl.archive.feather import feather_events

        return feather_events(data, "message")
    raise InvalidInput(f"the message is written in '{codec[:40]}'", hint=f"known: {', '.join(CODECS)}")
