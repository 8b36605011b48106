"""Server-sent events, read from whatever pieces the network gives. Pure: bytes in, messages out."""

from __future__ import annotations

import msgspec

from noetl.errors import Unavailable

__all__ = ["Message", "Reader"]

_MOST_BYTES = 4 << 20  # far more than an event may have; a server that sends more is not one of ours


class Message(msgspec.Struct, frozen=True):
    """One message, and the id to go on from."""

    event: str
    data: str
    last_id: str


class Reader:
    """Puts messages together. A message that is not complete when the connection ends was never there."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self._rest = b""
        self._data: list[str] = []
        self._event = ""
        self._held = 0

    def feed(self, piece: bytes) -> list[Message]:
        """The messages that are complete with this piece."""
        self._held += len(piece)
        if self._held > _MOST_BYTES:
            raise Unavailable("the server sent an event that is far too large", hint="is this a NoETL server?")
        *lines, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        found = [message for line in lines if (message := self._line(line.decode("utf-8", "replace"))) is not None]
        if found or not self._data:
            self._held = len(self._rest)  # comments, which keep a connection alive, do not add up
        return found

    def _line(self, line: str) -> Message | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        return None

    def _dispatch(self) -> Message | None:
        data, event = "\n".join(self._data), self._event or "message"
        complete = bool(self._data)
        self._data, self._event = [], ""
        return Message(event, data, self.last_id) if complete else None
