"""The bulk fold of a root is the replay of that root."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from noetl.data.bulk import Bounds, fold_root, merge
from noetl.data.bulk.bounds import EVERYTHING
from noetl.errors import Corruption, InvalidEvent, InvalidInput
from noetl.kernel.event import Envelope
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.kernel.time import parse_time
from noetl.kernel.upcast import default_registry
from noetl.replay.service import Cutoff, Replayed
from tests.golden.produce import replayed
from tests.golden.test_corpus import FILES, PINNED, events_of
from tests.unit.data.bulk.tables import Rows, row_of

FRAMES = "tests/golden/corpus/frames.jsonl"


def folded(events: Sequence[Envelope], bounds: Bounds = EVERYTHING, *, first: int = 1) -> Replayed:
    root = Stream(events[0].tenant_id, root_of(events[0].stream_id))
    rows = [row_of(position, event) for position, event in enumerate(events, start=first)]
    (name, chunks), *others = [(name, list(chunks)) for name, chunks in merge([Rows("one", rows, size=5)])]
    assert (name, others) == (root.stream_id, [])
    return fold_root(root, chunks, default_registry(), bounds)


@pytest.mark.parametrize("file", FILES)
def test_every_golden_history_gives_its_pinned_checksums(file: str) -> None:
    events = events_of(file)
    found = folded(events)
    assert (found.bundle(), found.checksum()) == (PINNED[file]["bundle"], PINNED[file]["state"])
    assert (found.events_folded, found.position) == (len(events), len(events))
    assert found.last_ingest_time == max(event.ingest_time for event in events)


@pytest.mark.parametrize("count", [1, 4, 5, 6, 17])
def test_a_position_cuts_where_a_replay_cuts(count: int) -> None:
    events = events_of(FRAMES)
    found = folded(events, Bounds(position=100 + count - 1), first=100)
    assert found.bundle() == replayed(events[:count]).bundle()
    assert (found.position, found.events_folded) == (100 + count - 1, count)


def test_a_time_is_that_of_the_ledger() -> None:
    events = events_of(FRAMES)
    moment = events[9].ingest_time
    told = [event for event in events if event.ingest_time <= moment]
    found = folded(events, Bounds.of(Cutoff(time=parse_time(moment))))
    assert found.bundle() == replayed(told).bundle()
    assert (found.events_folded, found.last_ingest_time) == (len(told), moment)


def test_before_the_first_event_there_is_nothing() -> None:
    found = folded(events_of(FRAMES), Bounds(until="2020-01-01T00:00:00.000000Z"))
    assert (found.events_folded, found.position) == (0, 0)
    assert all(not surface.rows for surface in found.state.surfaces.values())


def test_a_malformed_event_is_named() -> None:
    first, *rest = events_of(FRAMES)
    with pytest.raises(InvalidEvent, match=f"event {first.event_id}, field 'payload.path'"):
        folded([msgspec.structs.replace(first, payload={}), *rest])


def test_bytes_that_are_no_event_are_named_by_their_position() -> None:
    event = events_of(FRAMES)[0]
    root = Stream(event.tenant_id, root_of(event.stream_id))
    _, chunks = next(merge([Rows("one", [(root.stream_id, 7, b'{"event_id": 1}')])]))
    with pytest.raises(Corruption, match=f"{root.stream_id}: position 7 has no readable event: "):
        fold_root(root, chunks, default_registry())


def test_an_event_is_no_moment_of_everything() -> None:
    with pytest.raises(InvalidInput, match="an event is a moment of one execution"):
        Bounds.of(Cutoff(event_id=7))
