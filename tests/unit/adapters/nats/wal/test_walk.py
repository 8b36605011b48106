"""A chain is found from its end, and a broken one is said to be broken."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from noetl.adapters.nats.wal.index import Piece, root_of_event
from noetl.adapters.nats.wal.walk import check_link, walk
from noetl.errors import Corruption
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Recorded
from tests.scribe import Scribe
from tests.unit.kernel.drafts import STREAM, TELEMETRY, batch, draft


async def opened(piece: Piece) -> Sequence[Recorded]:
    return [Recorded(piece.first + n, event) for n, event in enumerate(piece.events or ())]


def log() -> tuple[StreamHead, list[Piece]]:
    """Four appends of two events, with a heartbeat in each."""
    scribe, pieces, first = Scribe(), [], 1
    for seq in range(1, 5):
        events = scribe.append(batch(draft(), draft()), batch(draft("worker.heartbeat"), stream=TELEMETRY))
        pieces.append(Piece(seq, first, len(events), frozenset(map(root_of_event, events)), events))
        first += len(events)
    head = scribe.heads[STREAM]
    assert head is not None
    return head, pieces


@pytest.mark.parametrize("after", range(9))
async def test_the_chain_leads_back_to_where_it_is_wanted(after: int) -> None:
    head, pieces = log()
    found = await walk(head, pieces, opened, after_version=after)
    assert [item.event.stream_version for item in found] == list(range(after + 1, 9))
    assert [item.position for item in found] == [[1, 2, 4, 5, 7, 8, 10, 11][n] for n in range(after, 8)]


async def test_it_goes_back_as_far_as_the_pieces_do() -> None:
    head, pieces = log()
    found = await walk(head, pieces[2:], opened)
    assert [item.event.stream_version for item in found] == [5, 6, 7, 8]
    older = await walk(head, pieces, opened)
    check_link(older[:4], found)
    check_link(older[:3], found)
    check_link([], found)
    stranger = Scribe(node=9).append(*(batch(draft()) for _ in range(4)))[-1]
    with pytest.raises(Corruption, match="does not follow"):
        check_link([Recorded(1, stranger)], found)


async def test_a_chain_with_a_piece_missing_is_corrupt() -> None:
    head, pieces = log()
    with pytest.raises(Corruption, match="its chain is broken"):
        await walk(head, [pieces[0], pieces[1], pieces[3]], opened)
    with pytest.raises(Corruption, match="its chain is broken"):
        await walk(head, pieces[:3], opened)
