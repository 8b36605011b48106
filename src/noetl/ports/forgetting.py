"""Forgetting: events leave the ledger once an archive has them, and what they prove stays.

Of a root that is forgotten the ledger keeps its stream heads, its idempotency keys, where its archive is, and of every
event the position and the checksum, 32 bytes instead of a few thousand. So the ledger's own chain can still be walked
from its first event to its last, a hole that nobody may explain is still found, and events that come back can stand
nowhere but where they stood.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from noetl.errors import Conflict, IntegrityMismatch
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope
from noetl.kernel.stamp import Stamped, adopt, streams_of_event
from noetl.kernel.streams import execution_of, root_of
from noetl.kernel.tail import Stream

__all__ = [
    "Family", "Forgetful", "Forgotten", "Recollection", "Run", "check_heads", "check_unmoved", "checksums_from",
    "concerns", "runs_of",
]  # fmt: skip

CHECKSUM_BYTES = 32
_MOST_IN_RUN = 1000


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A root whose events are in an archive and not in the ledger."""

    root: Stream
    family: Stream
    """The root execution whose bundle has the events: its own, or that of whoever called it."""
    uri: str
    manifest_sha256: str
    first_position: int
    last_position: int
    events: int
    size: int
    """How long the texts of its events were."""
    forgotten_at: str
    mac: str | None = None

    def digest(self) -> bytes:
        """What the MAC covers."""
        fields = (
            self.root.tenant_id, self.root.stream_id, self.family.stream_id, self.uri, self.manifest_sha256,
            str(self.first_position), str(self.last_position), str(self.events), str(self.size), self.forgotten_at,
        )  # fmt: skip
        return hashlib.sha256("\0".join(("forgotten", *fields)).encode()).digest()


class Run(msgspec.Struct, frozen=True, gc=False):
    """What is left of events of one root that stand side by side: where the first stands, and their checksums."""

    root: Stream
    first_position: int
    checksums: bytes

    def __len__(self) -> int:
        return len(self.checksums) // CHECKSUM_BYTES

    @property
    def last_position(self) -> int:
        """Where the last of them stands."""
        return self.first_position + len(self) - 1

    def items(self) -> Iterator[tuple[int, str]]:
        """Each position, and the checksum of the event that stood there."""
        return checksums_from(self.first_position, self.checksums)


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A root execution and all that it has called, as they were when their archive was checked."""

    root: Stream
    heads: Mapping[Stream, Sequence[StreamHead]]
    """The heads of all streams of each member: the ledger must still have these, and no others."""
    uri: str
    manifest_sha256: str
    unmoved: Mapping[Stream, int] = {}
    """Other streams that must still have so many events: those that could have said something against it."""


class Forgetful(Protocol):
    """A ledger that can let go of events which are kept elsewhere."""

    async def forget(self, family: Family) -> Sequence[Forgotten]:
        """Take the events of all members out of the ledger, or none; what is known of each member from then on.

        Whoever calls this has seen the archive. Raises Conflict if a stream has moved since, or if an event is still to
        be published or projected; IntegrityMismatch if events are missing. A family that is forgotten already is left
        as it is.
        """
        ...

    async def recall(self, family: Stream, envelopes: Iterable[Envelope]) -> int:
        """Put the events of a forgotten family back, all of them where they stood; how many there are.

        Nobody is told of them again: they were published and projected before. Raises IntegrityMismatch unless they are
        exactly those that were forgotten, NotFound if the family is not forgotten.
        """
        ...

    async def forgotten(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[Forgotten]:
        """Roots that are forgotten, in order of tenant and stream; only this `root`, if it is one."""
        ...

    async def runs(self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000) -> Sequence[Run]:
        """What is left of forgotten events, in order of position, beginning after one; of one root, or of all."""
        ...


def checksums_from(first: int, checksums: bytes) -> Iterator[tuple[int, str]]:
    """The positions of events that stood side by side, and what is left of each."""
    for index in range(len(checksums) // CHECKSUM_BYTES):
        yield first + index, checksums[index * CHECKSUM_BYTES : (index + 1) * CHECKSUM_BYTES].hex()


def runs_of(root: Stream, events: Iterable[tuple[int, str]]) -> Iterator[Run]:
    """The runs of events, given in order of position, each with its checksum."""
    first, checksums = 0, bytearray()
    for position, checksum in events:
        if checksums and (
            position != first + len(checksums) // CHECKSUM_BYTES or len(checksums) >= _MOST_IN_RUN * CHECKSUM_BYTES
        ):
            yield Run(root, first, bytes(checksums))
            checksums.clear()
        if not checksums:
            first = position
        checksums += bytes.fromhex(checksum)
    if checksums:
        yield Run(root, first, bytes(checksums))


def check_heads(family: Family, root: Stream, found: Iterable[StreamHead]) -> int:
    """How many events the streams of a member have. Raises Conflict unless they end where they did."""
    now, then = list(found), family.heads[root]
    if {head.digest() for head in now} != {head.digest() for head in then}:
        raise Conflict(
            f"{root.stream_id} has got more events since its archive was checked", hint="it is looked at again later"
        )
    return sum(head.count for head in now)


def check_unmoved(family: Family, stream: Stream, head: StreamHead | None) -> None:
    """Raise Conflict if a stream has grown that could have said something against it."""
    if (head.count if head else 0) != family.unmoved[stream]:
        raise Conflict(f"{stream.stream_id} has got more events meanwhile", hint="it is looked at again")


def concerns(terms: Sequence[tuple[str, str, Any]], root: Stream) -> bool:
    """Whether conditions on columns, each a column, an operator and a value, may hold for events of a forgotten root.

    Only a condition on the tenant or on the execution can rule that out.
    """
    known: dict[str, object] = {"tenant_id": root.tenant_id, "execution_id": execution_of(root.stream_id)}
    return not any(
        column in known
        and ((operator == "=" and value != known[column]) or (operator == "in" and known[column] not in value))
        for column, operator, value in terms
    )


class Recollection:
    """Events that come back, checked one after the other against what the ledger has kept of them."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._places = {
            (run.root.tenant_id, checksum): (run.root, position) for run in runs for position, checksum in run.items()
        }
        self._heads: dict[Stream, StreamHead | None] = {}

    def place(self, event: Envelope) -> tuple[int, Stamped]:
        """Where an event stood, and the event as it is stored. Raises IntegrityMismatch for a stranger."""
        for stream in streams_of_event(event):
            self._heads.setdefault(stream, None)
        stamped = adopt(event, self._heads)
        root, position = self._places.pop((event.tenant_id, event.envelope_checksum), (None, 0))
        if root is None or root.stream_id != root_of(event.stream_id):
            raise IntegrityMismatch(
                f"event {event.event_id} of {event.stream_id} is not one of those that were forgotten",
                hint="this is not the archive that they were left to",
            )
        return position, stamped

    def check_complete(self, kept: Iterable[StreamHead]) -> None:
        """Raise IntegrityMismatch unless all are back, and their streams end where the ledger says."""
        if self._places:
            raise IntegrityMismatch(
                f"{len(self._places)} of the events that were forgotten are not in the archive; nothing was restored"
            )
        rebuilt = {head.digest() for head in self._heads.values() if head is not None}
        if rebuilt != {head.digest() for head in kept}:
            raise IntegrityMismatch("the events do not end where the ledger's stream heads do; nothing was restored")
