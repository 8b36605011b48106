"""The end of a stream while events are being added to it."""

from __future__ import annotations

import hashlib

import msgspec

from noetl.errors import InvalidEvent, StreamSealed, VersionConflict
from noetl.kernel.chain import StreamHead, genesis
from noetl.kernel.streams import is_dense, root_of

__all__ = ["Stream", "Tail"]


class Stream(msgspec.Struct, frozen=True, gc=False):
    """A stream of one tenant. Execution ids are unique per tenant only, so the tenant is part of the name."""

    tenant_id: str
    stream_id: str


class Tail:
    """A stream head that moves. The chain is kept as raw bytes: hex is for what is stored."""

    __slots__ = ("_chain", "count", "dense", "event_id", "ingest_time", "moved", "sealed", "stream", "version")

    def __init__(self, stream: Stream, head: StreamHead | None) -> None:
        self.stream = stream
        self.dense = is_dense(stream.stream_id)
        self.version = head.version if head else 0
        self.event_id = head.event_id if head else 0
        self.count = head.count if head else 0
        self.ingest_time = head.ingest_time if head else ""
        self.sealed = head.sealed if head else False
        self._chain = bytes.fromhex(head.chain_hash if head else genesis(stream.stream_id))
        self.moved = False

    @property
    def previous(self) -> int | None:
        """The event that the next one follows, or None for the first."""
        return self.event_id if self.count else None

    def push(self, event_id: int, checksum: bytes, ingest_time: str) -> str:
        """Move past one event and return the chain's hash after it. Raises StreamSealed."""
        if self.sealed:
            raise StreamSealed(self.stream.stream_id)
        self.version = self.version + 1 if self.dense else event_id
        self.event_id = event_id
        self.count += 1
        self.ingest_time = ingest_time
        self._chain = hashlib.sha256(self._chain + checksum).digest()
        self.moved = True
        return self._chain.hex()

    def seal(self, count: int, sealing_stream: str, ingest_time: str) -> None:
        """Close the stream for good. An event that slipped in after the count was taken is a conflict."""
        if root_of(self.stream.stream_id) != root_of(sealing_stream) or self.dense:
            raise InvalidEvent("payload.seal.stream_id", f"'{self.stream.stream_id}' cannot be sealed from here")
        if self.count != count:
            raise VersionConflict(self.stream.stream_id, count, self.count)
        self.sealed = True
        self.ingest_time = self.ingest_time or ingest_time
        self.moved = True

    def head(self) -> StreamHead:
        """The head to store; its MAC is the writer's to add."""
        return StreamHead(
            self.stream.tenant_id,
            self.stream.stream_id,
            self.version,
            self.event_id,
            self.count,
            self._chain.hex(),
            self.ingest_time,
            self.sealed,
        )
