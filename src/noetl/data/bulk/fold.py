"""The fold of one root, from events that come as the canonical bytes a lake keeps, or as they are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from noetl.data.bulk.bounds import EVERYTHING, Bounds
from noetl.data.bulk.merging import Chunk
from noetl.errors import Corruption
from noetl.kernel.event import Envelope
from noetl.kernel.fold import apply, new_state
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import UpcasterRegistry
from noetl.replay.service import Replayed

__all__ = ["Folding", "fold_root"]

_decode = msgspec.json.Decoder(Envelope).decode


class Folding:
    """A root whose events come one by one, in order. Those that the ledger took in later than `until` are left out."""

    def __init__(self, root: Stream, registry: UpcasterRegistry, until: str | None = None) -> None:
        self._root = root
        self._registry = registry
        self._until = until
        self._state = new_state(root.stream_id)
        self._position = 0
        self._time = ""
        self._count = 0

    def add(self, position: int, event: Envelope) -> None:
        """Fold one event. Raises InvalidEvent if it is malformed, or of a version that nothing leads to."""
        time = event.ingest_time
        if self._until is not None and time > self._until:
            return
        apply(self._state, self._registry.upcast(event))
        self._position = position
        if time > self._time:
            self._time = time
        self._count += 1

    def replayed(self) -> Replayed:
        """What a replay of these events gives."""
        return Replayed(
            root=self._root,
            state=self._state,
            position=self._position,
            last_ingest_time=self._time,
            events_folded=self._count,
            snapshot=None,
            rejected=(),
            registry_digest=self._registry.digest(),
        )


def fold_root(
    root: Stream, chunks: Iterable[Chunk], registry: UpcasterRegistry, bounds: Bounds = EVERYTHING
) -> Replayed:
    """What `noetl.replay` gives for the same events and the same moment, its checksums included.

    Takes no more chunks than it needs. Raises InvalidEvent for a known event that is malformed, or of a version that
    nothing leads to, and Corruption for bytes that are no event.
    """
    folding = Folding(root, registry, bounds.until)
    add = folding.add
    for chunk in chunks:
        positions, lines = _within(chunk, bounds.position)
        for position, line in zip(positions, lines, strict=True):
            try:
                event = _decode(line)
            except msgspec.MsgspecError as error:
                raise Corruption(f"{root.stream_id}: position {position} has no readable event: {error}") from None
            add(position, event)
        if len(positions) < len(chunk.positions):
            break
    return folding.replayed()


def _within(chunk: Chunk, last: int | None) -> Chunk:
    if last is None or not chunk.positions or chunk.positions[-1] <= last:
        return chunk
    count = bisect_right(chunk.positions, last)
    return Chunk(chunk.positions[:count], chunk.lines[:count])
