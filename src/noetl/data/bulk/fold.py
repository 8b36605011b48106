"""The fold of one root, from events that come as the canonical bytes a lake keeps."""

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

__all__ = ["fold_root"]

_decode = msgspec.json.Decoder(Envelope).decode


def fold_root(
    root: Stream, chunks: Iterable[Chunk], registry: UpcasterRegistry, bounds: Bounds = EVERYTHING
) -> Replayed:
    """What `noetl.replay` gives for the same events and the same moment, its checksums included.

    Takes no more chunks than it needs. Raises InvalidEvent for a known event that is malformed, or of a version that
    nothing leads to, and Corruption for bytes that are no event.
    """
    state = new_state(root.stream_id)
    upcast, until = registry.upcast, bounds.until
    last_position, last_time, folded = 0, "", 0
    for chunk in chunks:
        positions, lines = _within(chunk, bounds.position)
        for position, line in zip(positions, lines, strict=True):
            try:
                event = _decode(line)
            except msgspec.MsgspecError as error:
                raise Corruption(f"{root.stream_id}: position {position} has no readable event: {error}") from None
            if until is not None and event.ingest_time > until:
                continue
            apply(state, upcast(event))
            last_position = position
            last_time = max(last_time, event.ingest_time)
            folded += 1
        if len(positions) < len(chunk.positions):
            break
    return Replayed(
        root=root,
        state=state,
        position=last_position,
        last_ingest_time=last_time,
        events_folded=folded,
        snapshot=None,
        rejected=(),
        registry_digest=registry.digest(),
    )


def _within(chunk: Chunk, last: int | None) -> Chunk:
    if last is None or not chunk.positions or chunk.positions[-1] <= last:
        return chunk
    count = bisect_right(chunk.positions, last)
    return Chunk(chunk.positions[:count], chunk.lines[:count])
