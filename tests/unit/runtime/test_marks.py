"""Marks say from which position on everything is young enough, whatever times the events bring."""

from __future__ import annotations

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.kv import MemoryKv
from noetl.runtime.marks import Marks
from tests.scribe import START

HOUR = 3600.0


async def test_nobody_knows_at_first() -> None:
    assert await Marks(MemoryKv(VirtualClock(START)), keep_seconds=HOUR).floor(START) == 0


async def test_the_floor_follows_a_keep_behind() -> None:
    clock = VirtualClock(START)
    marks = Marks(MemoryKv(clock), keep_seconds=HOUR)
    floors = []
    for minute in range(180):
        await marks.note(clock.now(), minute)
        floors.append(await marks.floor(clock.now()))
        clock.advance(60)
    assert floors[:60] == [0] * 60
    assert all(0 <= minute - 60 - floor <= 1 for minute, floor in enumerate(floors) if minute >= 60)


async def test_notes_do_not_grow_without_end() -> None:
    clock = VirtualClock(START)
    kv = MemoryKv(clock)
    marks = Marks(kv, keep_seconds=HOUR)
    for position in range(2000):
        await marks.note(clock.now(), position)
        clock.advance(20)
    (entry,) = await kv.list()
    assert entry.value is not None
    assert len(entry.value) < 5000


async def test_notes_that_cannot_be_read_are_none() -> None:
    clock = VirtualClock(START)
    kv = MemoryKv(clock)
    await kv.put("fabric/marks", b"\xff nonsense")
    marks = Marks(kv, keep_seconds=HOUR)
    assert await marks.floor(clock.now()) == 0
    await marks.note(clock.now(), 7)
    clock.advance(2 * HOUR)
    assert await marks.floor(clock.now()) == 7
