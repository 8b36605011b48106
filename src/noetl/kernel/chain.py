"""What makes a log hard to change unseen: the hash chain of a stream, and the seal on its head."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from functools import lru_cache

import msgspec

__all__ = ["LedgerHead", "StreamHead", "extend", "genesis", "mac_of"]

MODULUS = 1 << 256


class StreamHead(msgspec.Struct, frozen=True, gc=False):
    """Where a stream ends, under a MAC, so that a cut tail or a well-chained forgery is found too.

    In a dense stream `chain_hash` is that of its last event. A sparse stream's events carry none, so
    its head chains their checksums in the order they were committed.
    """

    tenant_id: str
    stream_id: str
    version: int
    event_id: int
    count: int
    chain_hash: str
    ingest_time: str
    sealed: bool = False
    mac: str | None = None

    def digest(self) -> bytes:
        """What the MAC covers and what the ledger's own head adds up."""
        fields = (
            self.tenant_id, self.stream_id, str(self.version), str(self.event_id), str(self.count),
            self.chain_hash, self.ingest_time, "sealed" if self.sealed else "open",
        )  # fmt: skip
        return hashlib.sha256("\0".join(fields).encode()).digest()


class LedgerHead(msgspec.Struct, frozen=True, kw_only=True):
    """Where the whole ledger ends: its last position, the sum of its stream heads, and a chain over all events.

    A stream that is deleted together with its head leaves no trace in itself; it is missing here. The
    chain runs in commit order, so two events of different streams that changed places are found too.
    """

    position: int = 0
    streams: int = 0
    total: str = "0" * 64
    chain_hash: str = hashlib.sha256(b"ledger").hexdigest()
    mac: str | None = None

    def digest(self) -> bytes:
        """What the MAC covers."""
        fields = (str(self.position), str(self.streams), self.total, self.chain_hash)
        return hashlib.sha256("\0".join(("ledger", *fields)).encode()).digest()

    def advanced(self, checksums: Iterable[str]) -> LedgerHead:
        """This head after more events have been committed; their streams' heads are still to be moved."""
        chain, position = bytes.fromhex(self.chain_hash), self.position
        for checksum in checksums:
            chain = hashlib.sha256(chain + bytes.fromhex(checksum)).digest()
            position += 1
        return msgspec.structs.replace(self, chain_hash=chain.hex(), position=position, mac=None)

    def moved(self, before: StreamHead | None, after: StreamHead) -> LedgerHead:
        """This head after one stream has moved; the MAC is left for the writer."""
        return self.moved_by(None if before is None else before.digest(), after.digest())

    def moved_by(self, before: bytes | None, after: bytes) -> LedgerHead:
        """The same by the digests of the stream's heads, for a writer that has them."""
        total = int(self.total, 16) + int.from_bytes(after, "big")
        if before is not None:
            total -= int.from_bytes(before, "big")
        streams = self.streams + (before is None)
        return msgspec.structs.replace(self, streams=streams, total=f"{total % MODULUS:064x}", mac=None)


def genesis(stream_id: str) -> str:
    """The chain hash before the first event of a stream."""
    return hashlib.sha256(stream_id.encode()).hexdigest()


def extend(previous: str, envelope_checksum: str) -> str:
    """The chain hash after one more event."""
    return hashlib.sha256(bytes.fromhex(previous) + bytes.fromhex(envelope_checksum)).hexdigest()


def mac_of(key: bytes, digest: bytes) -> str:
    """HMAC-SHA256 of a head's digest."""
    mac = _keyed(key).copy()
    mac.update(digest)
    return mac.hexdigest()


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> hmac.HMAC:
    return hmac.new(key, digestmod="sha256")
