"""What follows from the messages of the log, one after the other.

A message counts if it is valid on top of those before it: its events continue their streams, its keys are new, its
writer's expectations hold. Whoever reads the log judges every message by the same rules and so comes to the same
answer, the writer among them. JetStream's comparison of the subject's last message keeps nearly all others out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from noetl.adapters.nats.wal.messages import Message
from noetl.errors import NoetlError
from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.event import Envelope, content_digest
from noetl.kernel.retry import Key
from noetl.kernel.stamp import adopt, streams_of_event
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream

__all__ = ["RECENT_EVENTS", "Judgement", "Piece", "RootEnd", "WalIndex", "root_of_event"]

_HELD_EVENTS = 20_000
RECENT_EVENTS = 2_000
"""So many are kept at hand even if the table has them."""

_ROOTS = 20_000


class RootEnd(msgspec.Struct):
    """Where the streams of a root end, all of them."""

    heads: dict[Stream, StreamHead] = {}
    last_id: int = 0
    position: int = 0
    """Of its last event, as far as one was seen here."""


class Piece(msgspec.Struct):
    """The events of one message, and where they are in the log. They can be read again, and need not be held."""

    seq: int
    first: int
    count: int
    roots: frozenset[Stream]
    events: Sequence[Envelope] | None

    @property
    def last(self) -> int:
        return self.first + self.count - 1


class Judgement:
    """The verdict on one message while its events are looked at."""

    def __init__(self, index: WalIndex, *, adopted: bool, guards: Iterable[tuple[Stream, int]] = ()) -> None:
        self._index = index
        self._adopted = adopted
        self.heads: dict[Stream, StreamHead | None] = {}
        self.keys: dict[tuple[str, str], Key] = {}
        self.pieces: list[Piece] = []
        self.checksums: list[str] = []
        self.last_ids: dict[Stream, int] = {}
        self.refusal: str | None = None
        for stream, version in guards:
            head = index.head_of(stream)
            if (head.version if head else 0) != version:
                self.refusal = f"'{stream.stream_id}' is not at version {version}"

    def add(self, seq: int, events: Sequence[Envelope]) -> None:
        """Look at the events of one of its messages; those of the append itself come last."""
        first = self._index.position + len(self.checksums) + 1
        roots = set()
        for event in events:
            if self.refusal is not None:
                return
            root = root_of_event(event)
            roots.add(root)
            try:
                self._add_one(event, root)
            except NoetlError as error:
                self.refusal = error.message
        self.pieces.append(Piece(seq, first, len(events), frozenset(roots), events))

    def _add_one(self, event: Envelope, root: Stream) -> None:
        end = self._index.roots[root]
        for stream in streams_of_event(event):
            if stream not in self.heads:
                self.heads[stream] = end.heads.get(stream)
        last_id = self.last_ids.get(root, end.last_id)
        if not self._adopted and event.event_id <= last_id:
            self.refusal = f"event {event.event_id} does not follow {last_id}"
            return
        stamped = adopt(event, self.heads)
        self.last_ids[root] = max(last_id, event.event_id)
        self.checksums.append(event.envelope_checksum)
        key = event.idempotency_key
        if key is None:
            return
        if (event.tenant_id, key) in self.keys or self._index.knows(event.tenant_id, key):
            self.refusal = f"idempotency key '{key}' is taken"
            return
        content = content_digest(event.stream_id, event, bytes(stamped.record.payload))
        self.keys[event.tenant_id, key] = Key(self._index.position + len(self.checksums), event.event_id, content)


class WalIndex:
    """The end of the log: all heads that have moved, and every event that is not surely in the table."""

    def __init__(self, head: LedgerHead, seq: int, *, recent: int = RECENT_EVENTS) -> None:
        self.recent = recent
        self.head = head
        self.seq = seq
        """The last message that was judged."""
        self.base = head.position
        """Everything up to here is in the table, and perhaps nowhere else."""
        self.roots: OrderedDict[Stream, RootEnd] = OrderedDict()
        self.keys: dict[tuple[str, str], Key] = {}
        self.pieces: list[Piece] = []
        self.marks: list[tuple[int, int]] = []
        """For each append that counts, the last position and the message, in order."""
        self._by_root: dict[Stream, list[Piece]] = {}
        self._subjects: dict[str, int] = {}
        self._held = 0
        self.taken_keys: set[tuple[str, str]] = set()
        """Keys of the message at hand that the table has."""

    @property
    def position(self) -> int:
        """Of the last event."""
        return self.head.position

    def head_of(self, stream: Stream) -> StreamHead | None:
        """Where a stream ends, of a root that is known."""
        return self.roots[_root(stream)].heads.get(stream)

    def knows(self, tenant_id: str, key: str) -> bool:
        """Whether a key is taken."""
        return (tenant_id, key) in self.keys or (tenant_id, key) in self.taken_keys

    def last_of(self, subject: str) -> int | None:
        """Where the last message of a subject is, if one was seen."""
        return self._subjects.get(subject)

    def note_last(self, subject: str, seq: int) -> None:
        """The last message of a subject, as JetStream says."""
        self._subjects[subject] = max(seq, self._subjects.get(subject, 0)) if seq else 0

    def pass_over(self, seq: int, subject: str | None = None) -> None:
        """A message that changes nothing."""
        self.seq = seq
        if subject is not None:
            self._subjects[subject] = seq

    def take(self, seq: int, message: Message, judgement: Judgement) -> None:
        """A message that counts."""
        self.pass_over(seq, message.subject)
        head = self.head.advanced(judgement.checksums)
        for stream, after in judgement.heads.items():
            end = self.roots[_root(stream)]
            before = end.heads.get(stream)
            if after is not None and after is not before:
                head = head.moved(before, after)
                end.heads[stream] = after
        self.head = head
        for root, last_id in judgement.last_ids.items():
            self.roots[root].last_id = last_id
            self.roots[root].position = head.position
            self.roots.move_to_end(root)
        self.keys |= judgement.keys
        for piece in judgement.pieces:
            if piece.count:
                self.pieces.append(piece)
                self._held += piece.count
                for root in piece.roots:
                    self._by_root.setdefault(root, []).append(piece)
        self.marks.append((head.position, seq))
        self._let_go()

    def mark_at(self, position: int) -> tuple[int, int] | None:
        """The last position and the message of the append that ends at or before a position."""
        found = bisect_left(self.marks, (position + 1, 0))
        return self.marks[found - 1] if found else None

    def after(self, position: int) -> Sequence[Piece]:
        """The pieces that hold what comes after a position."""
        return self.pieces[bisect_left(self.pieces, position + 1, key=lambda piece: piece.last) :]

    def of_root(self, root: Stream, position: int = 0) -> Sequence[Piece]:
        """The pieces with events of a root after a position."""
        found = self._by_root.get(root, [])
        return found[bisect_left(found, position + 1, key=lambda piece: piece.last) :]

    def trim(self, position: int) -> tuple[list[Piece], list[tuple[str, str]]]:
        """Forget what is in the table up to a position, but for the newest; the pieces and keys that are forgotten."""
        upto = min(position, self.position - self.recent)
        gone = self.pieces[: bisect_left(self.pieces, upto + 1, key=lambda piece: piece.last)]
        keys: list[tuple[str, str]] = []
        if gone:
            self.base = gone[-1].last
            del self.pieces[: len(gone)]
            del self.marks[: bisect_left(self.marks, (self.base + 1, 0))]
            keys = [name for name, key in self.keys.items() if key.position <= self.base]
            for name in keys:
                del self.keys[name]
        for piece in gone:
            self._held -= 0 if piece.events is None else piece.count
            for root in piece.roots:
                self._forget_piece(root)
        while len(self.roots) > _ROOTS and next(iter(self.roots.values())).position <= self.base:
            self.roots.popitem(last=False)
        if len(self._subjects) > 4 * _ROOTS:
            self._subjects.clear()  # JetStream is asked again
        return gone, keys

    def _forget_piece(self, root: Stream) -> None:
        found = self._by_root[root]
        found.pop(0)
        if not found:
            del self._by_root[root]

    def _let_go(self) -> None:
        """Hold no more events than so many; the oldest are read again when they are asked for."""
        for piece in self.pieces if self._held > _HELD_EVENTS else ():
            if piece.events is not None:
                piece.events = None
                self._held -= piece.count
            if self._held <= _HELD_EVENTS // 2:
                return


def root_of_event(event: Envelope) -> Stream:
    """The root of an event's stream."""
    return Stream(event.tenant_id, root_of(event.stream_id))


def _root(stream: Stream) -> Stream:
    return Stream(stream.tenant_id, root_of(stream.stream_id))
