"""One stream, event by event, trusting nothing."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from noetl.errors import NoetlError
from noetl.kernel.chain import extend, genesis
from noetl.kernel.event import Record, checksum_of
from noetl.kernel.merkle import Merkle
from noetl.kernel.seal import SEALING_TYPES, Seal, seal_of_payload
from noetl.kernel.streams import is_dense
from noetl.ports.ledger import Audited

__all__ = ["StreamWalk", "seal_in_record"]


class StreamWalk:
    """The state of a walk along a stream: where it stands, and the seals it has met.

    `seal_sizes` are the sizes at which the stream is said to have been sealed; the Merkle root is
    remembered there, so a walk needs no more memory than a tree's peaks.
    """

    def __init__(self, stream_id: str, seal_sizes: frozenset[int] = frozenset()) -> None:
        self.stream_id = stream_id
        self.dense = is_dense(stream_id)
        self.count = 0
        self.version = 0
        self.first_event_id: int | None = None
        self.last_event_id = 0
        self.chain_hash = genesis(stream_id)
        self.seals: list[tuple[int, Seal]] = []
        self._sealed_to = 0
        self.position = 0
        self._ingest_time = ""
        self._tree = Merkle()
        self._seal_sizes = seal_sizes
        self._roots = {0: self._tree.root()}

    @property
    def unsealed(self) -> int:
        """Events of a sparse stream that no seal covers yet."""
        return self.count - self._sealed_to

    def step(self, item: Audited) -> Iterator[tuple[int, str]]:
        """Move past one stored event; yields its id and what is wrong with it."""
        record = item.record
        actual = checksum_of(record)
        if actual != item.envelope_checksum:
            yield record.event_id, f"event {record.event_id} does not match its checksum"
        yield from self._order(item)
        self.chain_hash = extend(self.chain_hash, actual)
        if not self.dense and item.chain_hash is not None:
            yield record.event_id, f"event {record.event_id} carries a chain hash, which its stream has not"
        if self.dense and item.chain_hash != self.chain_hash:
            yield record.event_id, f"event {record.event_id} does not continue the hash chain"
            self.chain_hash = _usable(item.chain_hash, self.chain_hash)
        if record.event_type in SEALING_TYPES:
            yield from self._note_seal(item)
        self.count += 1
        if not self.dense:
            self._tree.add(actual)
            if self.count in self._seal_sizes:
                self._roots[self.count] = self._tree.root()
        self.version = record.stream_version
        self.first_event_id = self.first_event_id or record.event_id
        self.last_event_id = record.event_id
        self.position, self._ingest_time = item.position, record.ingest_time

    def check_seal(self, seal: Seal) -> str | None:
        """Why a seal does not hold for the events that are here, or None."""
        if seal.count > self.count:
            return f"{seal.count - self.count} of {seal.count} sealed events are missing"
        if self._roots.get(seal.count) != seal.root:
            return f"its first {seal.count} events are not the ones that were sealed"
        if seal.final and seal.count != self.count:
            return f"{self.count - seal.count} events were added after it was closed"
        self._sealed_to = max(self._sealed_to, seal.count)
        return None

    def _order(self, item: Audited) -> Iterator[tuple[int, str]]:
        record = item.record
        if self.dense and record.stream_version != self.version + 1:
            missing = f", event {record.prev_event_id} is missing" if record.prev_event_id != self.last_event_id else ""
            yield (
                record.prev_event_id if missing and record.prev_event_id else record.event_id,
                f"version {record.stream_version} follows {self.version}{missing}",
            )
        elif self.dense and (record.prev_event_id or 0) != self.last_event_id:
            yield record.event_id, f"event {record.event_id} does not name the event before it"
        if not self.dense and record.stream_version != record.event_id:
            yield record.event_id, f"event {record.event_id} has another version"
        if record.event_id <= self.last_event_id:
            yield record.event_id, f"event {record.event_id} does not follow {self.last_event_id}"
        if record.ingest_time < self._ingest_time:
            yield record.event_id, f"event {record.event_id} arrived before the one it follows"

    def _note_seal(self, item: Audited) -> Iterator[tuple[int, str]]:
        record = item.record
        try:
            seal = seal_in_record(record)
        except (NoetlError, msgspec.MsgspecError) as error:
            yield record.event_id, f"event {record.event_id} seals nothing readable: {error}"
            return
        if seal is not None:
            self.seals.append((record.event_id, seal))


def seal_in_record(record: Record) -> Seal | None:
    """The seal a stored event carries, if it is one that seals."""
    if record.event_type not in SEALING_TYPES:
        return None
    payload = msgspec.json.decode(record.payload, type=dict)
    return seal_of_payload(record.event_type, payload, record.event_id)


def _usable(stored: str | None, computed: str) -> str:
    """Go on from what is stored, so that one bad event is reported once and not with all that follow."""
    try:
        return stored if stored and len(bytes.fromhex(stored)) == 32 else computed
    except ValueError:
        return computed
