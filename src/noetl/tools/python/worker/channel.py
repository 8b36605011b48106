"""Frames over a stream: four bytes of length, then JSON."""

from __future__ import annotations

import os

__all__ = ["HEADER_BYTES", "Channel"]

HEADER_BYTES = 4
_CHUNK = 1 << 16


class Channel:
    """One end of the conversation.

    Only one frame is ever under way, so a read never holds two; a header is sent in one piece, so it is never cut.
    """

    def __init__(self, descriptor: int, side: int) -> None:
        os.set_inheritable(descriptor, False)
        os.set_inheritable(side, False)
        self._descriptor = descriptor
        self._side = side
        # A fork of user code must not answer in our name, nor keep the conversation open.
        os.register_at_fork(after_in_child=self._leave)

    def receive(self) -> bytes | None:
        """The next frame, or None when the other side has gone."""
        data = os.read(self._descriptor, _CHUNK)
        if len(data) < HEADER_BYTES:
            return None
        size = int.from_bytes(data[:HEADER_BYTES], "big")
        body = data[HEADER_BYTES:]
        return body if len(body) == size else self._rest(body, size)

    def send(self, body: bytes) -> None:
        """Write one frame."""
        header = len(body).to_bytes(HEADER_BYTES, "big")
        if len(body) <= _CHUNK:
            left = memoryview(header + body)
        else:
            os.write(self._descriptor, header)
            left = memoryview(body)
        while left:
            left = left[os.write(self._descriptor, left) :]

    def _rest(self, start: bytes, size: int) -> bytes | None:
        parts = [start]
        missing = size - len(start)
        while missing > 0:
            part = os.read(self._descriptor, min(missing, 1 << 20))
            if not part:
                return None
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _leave(self) -> None:
        os.close(self._descriptor)
        os.close(self._side)
        self._descriptor = self._side = -1
