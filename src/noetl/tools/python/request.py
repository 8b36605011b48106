"""What is sent to a process, and what comes back."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from noetl.kernel.event import Json

__all__ = ["HEADER_BYTES", "Reply", "Request", "frame_of", "reply_of"]

HEADER_BYTES = 4
MAX_FRAME = (1 << 32) - 1


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Code to run, and what it may see."""

    code: str
    input: Json
    directory: str
    context: Json | UnsetType = UNSET
    data: Any = UNSET
    libs: Json | UnsetType = UNSET
    environment: dict[str, str] | UnsetType = UNSET
    offered: Json | UnsetType = UNSET
    """What the code uses without having been given it, each as an object with attributes."""
    tables: Json | UnsetType = UNSET
    """Of the files that come beside the request: where in each the table is, and where in the request it belongs."""
    room: int
    """How much memory a table that comes back may take, in bytes; a larger one is written to `scratch`."""
    scratch: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A result or an error. A process that asks to be retired has seen better days."""

    result: Any = None
    table: int | None = None
    """The result is a table, so many bytes long, whose file comes beside the reply."""
    error: Json | None = None
    py: Json | None = None
    retire: bool = False


_ENCODER = msgspec.json.Encoder(decimal_format="number")
_DECODER = msgspec.json.Decoder(Reply)


def frame_of(request: Request) -> bytes:
    """The bytes to send. Raises TypeError or ValueError when an input has no JSON form."""
    body = _ENCODER.encode(request)
    if len(body) > MAX_FRAME:
        raise ValueError(f"the inputs take {len(body)} bytes, which is too much for one call")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def reply_of(body: memoryview) -> Reply:
    """What a process has answered. Raises msgspec.MsgspecError."""
    try:
        return _DECODER.decode(body)
    except RecursionError:
        message = "the result is nested too deeply"
        return Reply(error={"kind": "schema", "code": "RESULT_NOT_SERIALISABLE", "message": message})
