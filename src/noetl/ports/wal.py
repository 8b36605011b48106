"""What a write-ahead log leans on: the table that its events are copied into, and how far that has come."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import Protocol

import msgspec

from noetl.kernel.chain import LedgerHead
from noetl.kernel.event import Envelope
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Ledger

__all__ = ["Known", "Mark", "Materialized", "Standing", "digest_of_key", "digest_of_root"]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a log: all appends up to `seq` are in the table, and the last of them ends at `position`."""

    stream: str
    life: str
    """Another one after the stream was made anew."""
    seq: int
    position: int


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where the table stands, as of one moment."""

    mark: Mark | None
    """None while no log writes to it."""
    head: LedgerHead


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Digests of all idempotency keys and of all roots that the table has, each eight bytes, in order."""

    keys: array[int]
    roots: array[int]


class Materialized(Ledger, Protocol):
    """The event table of a write-ahead log: a ledger that nobody but the log's materializer writes to."""

    async def standing(self) -> Standing:
        """How far it has come, and where its log ends there."""
        ...

    async def claim(self, mark: Mark) -> Mark:
        """Make it the table of a log, beginning there, unless it is one already; the mark that holds then."""
        ...

    async def rebind(self, mark: Mark | None) -> None:
        """Belong to another log from here on, or to none. Whoever says so knows that the one before has ended."""
        ...

    async def materialize(self, events: Sequence[Envelope], mark: Mark) -> int:
        """Add the events up to a mark, and the mark, together; how many of them were new.

        What is there already is left as it is, so several may do it at once. Raises IntegrityMismatch if the table
        has other events than the log.
        """
        ...

    async def known(self) -> Known:
        """What it has, in a form that is small enough to be remembered."""
        ...


def digest_of_key(tenant_id: str, key: str) -> int:
    """What is remembered of a key. It only ever says that a key is new, so it need not withstand anybody."""
    return _digest(tenant_id, key)


def digest_of_root(root: Stream) -> int:
    """What is remembered of a root."""
    return _digest(root.tenant_id, root.stream_id)


def _digest(tenant_id: str, text: str) -> int:
    digest = hashlib.md5(f"{tenant_id}\x01{text}".encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
