"""What one transaction of an append is about: what is asked for, what the log says, and what will be written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noetl.adapters.postgres.database import Row
from noetl.errors import NoetlError
from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.event import Envelope
from noetl.kernel.retry import Key, Keys, keys_of
from noetl.kernel.stamp import Batch, Prepared, Stream, streams_of
from noetl.kernel.streams import root_of
from noetl.ports.leases import Lease

__all__ = ["Append", "Holding", "Known", "Plan", "Remembered", "holding"]


class Append(NamedTuple):
    """One call of `append`, found valid."""

    batches: Sequence[Batch]
    prepared: Sequence[Prepared]
    keys: Keys
    held: Sequence[Lease] = ()
    """What is to be held when it is written, and is given back with it."""

    @classmethod
    def of(cls, batches: Sequence[Batch], prepared: Sequence[Prepared], held: Sequence[Lease] = ()) -> Append:
        return cls(batches, prepared, keys_of(prepared), held)

    @property
    def tenant_id(self) -> str:
        return self.batches[0].stream.tenant_id

    @property
    def root(self) -> Stream:
        return Stream(self.tenant_id, root_of(self.batches[0].stream.stream_id))

    @property
    def streams(self) -> set[Stream]:
        return streams_of(self.prepared) | {batch.stream for batch in self.batches}

    @property
    def begins(self) -> bool:
        """Whether the caller takes its root for a new one."""
        root = self.root
        return any(batch.stream == root and batch.expected_version == 0 for batch in self.batches)

    @property
    def size(self) -> int:
        """The bytes of what its events say."""
        return sum(len(item.payload) + len(item.meta) for item in self.prepared)


Holding = tuple[str, str, int]
"""What a lease is known by: its name, its owner and its token."""


def holding(lease: Lease) -> Holding:
    """What is compared of a lease; whoever holds it need not know when it ends."""
    return lease.name, lease.owner, lease.token


class Known(msgspec.Struct, kw_only=True):
    """What the log says while its head is locked, and what is added to it meanwhile."""

    now: int = 0
    heads: dict[Stream, StreamHead | None] = {}
    last_ids: dict[Stream, int] = {}
    new: set[Stream] = set()
    """Roots that had no stream at all."""
    keys: dict[tuple[str, str], Key] = {}
    gone: dict[Stream, str] = {}
    """Roots whose events are archived, and where."""
    events: dict[int, Envelope] = {}
    """Those that a retry is to be answered with."""
    held: set[Holding] = set()
    """Leases that are held, and locked."""


class Remembered(msgspec.Struct, frozen=True, gc=False):
    """A row of `idempotency`."""

    tenant_id: str
    key: str
    event_id: int
    position: int
    content: str


class Plan(msgspec.Struct, kw_only=True):
    """What one transaction writes."""

    before: LedgerHead
    """Where the ledger ended when it was made."""
    ledger: LedgerHead
    last_event_id: int
    known: Known = msgspec.field(default_factory=Known)
    rows: list[Row] = []
    """The events that are not sent yet."""
    checksum: str = ""
    """That of its first event, which tells it from any other that may stand there; empty if there are none."""
    remembered: list[Remembered] = []
    heads: dict[Stream, StreamHead] = {}
    answers: list[Sequence[Envelope] | NoetlError] = []
    given_back: list[Lease] = []
    """The leases that end with it."""

    @property
    def first(self) -> int:
        """The position of its first event."""
        return self.before.position + 1
