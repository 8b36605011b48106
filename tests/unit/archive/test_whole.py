"""A log part of which is archived: nobody who reads a root sees a difference."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from noetl.archive.whole import WholeLedger
from noetl.errors import Archived, IntegrityMismatch
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.tail import Stream
from noetl.ports.forgetting import Family, Forgotten
from noetl.replay.service import Cutoff, Replayer
from noetl.replay.verify import Verifier
from noetl.runtime.projector import PROJECTOR
from tests.unit.kernel.drafts import STREAM, TELEMETRY, batch, draft
from tests.unit.replay.shop import Shop

OTHER = Stream("acme", "execution/9")
URI = "file:///archive/execution=4101"


class Place:
    """A shop whose first execution is archived in a list."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.bundle: list[Envelope] = []
        self.read = 0
        self.whole = WholeLedger(self.shop.ledger, self.unpack)
        shop = self.shop
        self.replayer = Replayer(self.whole, shop.projections, shop.registry, shop.clock, shop.payloads)
        self.verifier = Verifier(self.whole, shop.projections, self.replayer, PROJECTOR)

    async def unpack(self, left: Forgotten) -> AsyncIterator[Envelope]:
        assert left.uri == URI
        self.read += 1
        for event in self.bundle:
            yield event

    async def forget(self) -> None:
        ledger = self.shop.ledger
        self.bundle = [item.event for item in await ledger.read_root(STREAM)]
        heads = {STREAM: await ledger.heads(root=STREAM)}
        await ledger.forget(Family(root=STREAM, heads=heads, uri=URI, manifest_sha256="ab" * 32))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    await place.shop.run_steps(2, stream=OTHER)
    await place.shop.write(draft(idempotency_key="start"))
    await place.shop.run_steps(5)
    await place.shop.write(draft("command.heartbeat", command_id=9), stream=TELEMETRY)
    await place.shop.projector.catch_up()
    await place.shop.run_steps(1, stream=OTHER)
    await place.shop.projector.catch_up()
    yield place
    await place.whole.close()


async def test_every_reading_of_a_root_gives_the_same(place: Place) -> None:
    async def readings() -> list[object]:
        whole = place.whole
        third = (await whole.read_root(STREAM))[2]
        return [
            await whole.read_root(STREAM),
            await whole.read_root(STREAM, after_position=4, to_position=6),
            await whole.read(STREAM),
            await whole.read(STREAM, after_version=2, to_version=4),
            await whole.read(TELEMETRY),
            await whole.find(STREAM, third.event.event_id),
            await whole.find(STREAM, 1),
            await whole.by_key("acme", "start"),
            await whole.audit(root=STREAM),
            await whole.read_roots({STREAM: (3, 5), OTHER: (0, 99)}),
            await whole.heads(),
            await whole.ledger_head(),
        ]

    before = await readings()
    await place.forget()
    assert await readings() == before


async def test_pages_are_read_from_one_opened_bundle(place: Place) -> None:
    await place.forget()
    found: list[Recorded] = []
    after = 0
    while page := await place.whole.read_root(STREAM, after_position=after, limit=2):
        found += page
        after = page[-1].position
    assert [item.event for item in found] == place.bundle
    assert place.read == 1


async def test_many_readers_in_between_pages_do_not_disturb_each_other(place: Place) -> None:
    await place.forget()
    first = await place.whole.read_root(STREAM, limit=3)
    for limit in range(1, 8):
        await place.whole.read(STREAM, limit=limit)
        await place.whole.read_root(STREAM, limit=limit)
    rest = await place.whole.read_root(STREAM, after_position=first[-1].position)
    assert [item.event for item in [*first, *rest]] == place.bundle


async def test_a_replay_and_a_proof_come_to_the_same(place: Place) -> None:
    before = await place.replayer.replay(STREAM, snapshots=False)
    past = await place.replayer.replay(STREAM, Cutoff(position=6), snapshots=False)
    proof = await place.verifier.verify(STREAM)
    await place.forget()
    after = await place.replayer.replay(STREAM, snapshots=False)
    assert (after.checksum(), after.bundle(), after.position) == (before.checksum(), before.bundle(), before.position)
    assert (await place.replayer.replay(STREAM, Cutoff(position=6))).checksum() == past.checksum()
    again = await place.verifier.verify(STREAM)
    assert again.ok
    assert again.archive == URI
    assert {**msgspec.to_builtins(again), "archive": None} == msgspec.to_builtins(proof)


async def test_the_ledger_is_whole_with_what_is_archived(place: Place) -> None:
    await place.forget()
    found = await place.verifier.verify_ledger()
    assert (found.problems, found.archived, found.archived_events) == ([], 1, 8)
    assert [root async for root in place.verifier.roots()] == [STREAM, OTHER]


async def test_writing_to_an_archived_root_is_refused(place: Place) -> None:
    await place.forget()
    with pytest.raises(Archived, match="noetl restore"):
        await place.whole.append([batch(draft())])
    with pytest.raises(Archived):
        await place.whole.adopt(place.bundle)


async def test_an_archive_that_is_not_the_one_is_named(place: Place) -> None:
    await place.forget()
    place.bundle[1], place.bundle[2] = place.bundle[2], place.bundle[1]
    with pytest.raises(IntegrityMismatch, match=rf"{URI}: event \d+ is not the one .* at position 5"):
        await place.whole.read_root(STREAM)


async def test_an_archive_that_ends_early_is_named(place: Place) -> None:
    await place.forget()
    last = place.bundle.pop()
    with pytest.raises(IntegrityMismatch, match=rf"{URI}: .* at position 11 is missing"):
        await place.whole.read_root(STREAM)
    place.bundle += [last, last]
    with pytest.raises(IntegrityMismatch):
        await place.whole.read_root(STREAM)


async def test_what_came_back_is_read_from_the_ledger(place: Place) -> None:
    await place.forget()
    assert await place.whole.recall(STREAM, place.bundle) == len(place.bundle)
    assert [item.event for item in await place.whole.read_root(STREAM)] == place.bundle
    assert place.read == 0
