"""Folding, against decoding the same events with the wire library."""

from __future__ import annotations

import time

import msgspec

from benchmarks import drafts
from benchmarks.harness import Measurement, alternate
from noetl.kernel.event import Envelope
from noetl.kernel.fold import apply, new_state
from noetl.kernel.ids import Snowflake
from noetl.kernel.stamp import Batch, prepare, stamp

__all__ = ["fold"]

_STEPS = 2500


def fold() -> Measurement:
    """All events of a chain of steps into one state, its checksums included."""
    events = _events()
    lines = [msgspec.json.encode(event) for event in events]
    decode = msgspec.json.Decoder(Envelope).decode

    def ours(_: int) -> float:
        begun = time.perf_counter()
        state = new_state("execution/7")
        for event in events:
            apply(state, event)
        state.bundle()
        return time.perf_counter() - begun

    def reference(_: int) -> float:
        begun = time.perf_counter()
        for line in lines:
            decode(line)
        return time.perf_counter() - begun

    return alternate("fold", "s", ours, reference, rounds=9, detail={"events": len(events)})


def _events() -> list[Envelope]:
    stream = drafts.execution(7)
    written = drafts.start(7)
    for number in range(_STEPS):
        written += drafts.step(7, number, offset=len(written))
    batches = [Batch(stream=stream, drafts=written, expected_version=0)]
    plan = stamp(batches, prepare(batches), {stream: None}, Snowflake(1), 1_780_000_000_000_000)
    return [stamped.event for stamped in plan.events]
