"""A log written in memory by the kernel's own rules: what a ledger does, without storage.

The golden corpus and the kernel's tests both need stamped envelopes. They get them here, from a clock
that only moves when it is told to and from one Snowflake generator, so the same calls give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from noetl.kernel import canonical
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Draft, Envelope, Json
from noetl.kernel.fold import State, apply, new_state
from noetl.kernel.ids import Snowflake
from noetl.kernel.merkle import Merkle
from noetl.kernel.seal import Seal
from noetl.kernel.stamp import Batch, Stream, prepare, stamp, streams_of
from noetl.kernel.streams import root_of
from noetl.kernel.time import parse_time

START = parse_time("2026-03-02T08:00:00Z")


class Scribe:
    """Stamps drafts and remembers everything, in commit order."""

    def __init__(self, *, node: int = 7, now: int = START) -> None:
        self.ids = Snowflake(node)
        self.now = now
        self.heads: dict[Stream, StreamHead | None] = {}
        self.written: list[Envelope] = []

    def append(self, *batches: Batch) -> list[Envelope]:
        """Stamp and keep one append."""
        prepared = prepare(batches)
        heads = {stream: self.heads.get(stream) for stream in streams_of(prepared)}
        plan = stamp(batches, prepared, heads, self.ids, self.now)
        self.heads.update(plan.heads)
        events = [stamped.event for stamped in plan.events]
        self.written += events
        return events

    def write(self, stream: Stream, *drafts: Draft) -> list[Envelope]:
        """One append to one stream, at whatever version it has."""
        return self.append(Batch(stream=stream, drafts=drafts))

    def seal(self, stream: Stream, *, final: bool) -> Json:
        """The seal over everything in a sparse stream so far."""
        tree = Merkle()
        places = [
            (place, event)
            for place, event in enumerate(self.written, start=1)
            if (event.tenant_id, event.stream_id) == (stream.tenant_id, stream.stream_id)
        ]
        for _, event in sorted(places, key=lambda placed: placed[1].event_id):
            tree.add(event.envelope_checksum)
        seal = Seal(
            stream_id=stream.stream_id,
            root=tree.root(),
            count=tree.count,
            first_event_id=places[0][1].event_id if places else 0,
            last_event_id=places[-1][1].event_id if places else 0,
            first_position=places[0][0] if places else 0,
            last_position=places[-1][0] if places else 0,
            peaks=tree.peaks,
            final=final,
        )
        plain: Json = msgspec.to_builtins(seal)
        return plain | {"peaks": list(seal.peaks)}

    def of_root(self, root: str) -> list[Envelope]:
        """What was written to one root and the streams below it."""
        return [event for event in self.written if root_of(event.stream_id) == root]


def line_of(event: Envelope) -> bytes:
    """An envelope as one line of a log file: canonical JSON, checksums included."""
    return canonical.encode(msgspec.to_builtins(event))


def event_of(line: bytes) -> Envelope:
    """The envelope that a line of a log file holds."""
    return msgspec.json.decode(line, type=Envelope)


def fold_all(events: Iterable[Envelope], state: State | None = None) -> State:
    """The state after some events of one root."""
    for event in events:
        state = apply(state or new_state(event.stream_id), event)
    if state is None:
        raise ValueError("no events to fold")
    return state


def by_stream(events: Sequence[Envelope]) -> dict[str, list[Envelope]]:
    """The events of each stream, in the stream's order."""
    streams: dict[str, list[Envelope]] = {}
    for event in events:
        streams.setdefault(event.stream_id, []).append(event)
    return streams
