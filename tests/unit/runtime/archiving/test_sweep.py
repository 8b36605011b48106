"""What is still to be archived is found, and archived as it ends."""

from __future__ import annotations

import logging

import pytest

from noetl.errors import Unavailable
from noetl.kernel.tail import Stream
from noetl.runtime.archiving import Archiver
from noetl.runtime.archiving.families import family_of, find
from noetl.runtime.archiving.places import ArchivePlace
from noetl.runtime.archiving.sweep import Following, ended_roots, is_settled
from noetl.runtime.wiring import Embedded
from tests.unit.archive.bundle.golden import SIGNER, FailingStore
from tests.unit.runtime.histories import EXECUTION, History, whole

CHILD, OTHER = EXECUTION + 1000, EXECUTION + 3000


@pytest.fixture
def archiver(embedded: Embedded, store: FailingStore) -> Archiver:
    return Archiver(embedded, ArchivePlace(store, "s3://cold"), SIGNER)


def root(number: int) -> Stream:
    return Stream("acme", f"execution/{number}")


async def begun(embedded: Embedded, number: int, *, parent: int | None = None) -> History:
    history = History(embedded, number, parent=parent)
    await history.begin()
    return history


async def test_ended_roots_that_are_not_archived_come_in_order(embedded: Embedded, archiver: Archiver) -> None:
    await whole(embedded, OTHER)
    await whole(embedded)
    await whole(embedded, CHILD, parent=EXECUTION)
    await begun(embedded, EXECUTION + 5000)
    await embedded.projector.catch_up()
    assert [one.root async for one in ended_roots(embedded, "acme")] == [root(EXECUTION), root(OTHER)]
    assert [one async for one in ended_roots(embedded, "acme", ended_before=0)] == []
    assert [one async for one in ended_roots(embedded, "globex")] == []
    await archiver.archive(root(EXECUTION))
    assert [one.root async for one in ended_roots(embedded, "acme")] == [root(OTHER)]


async def test_what_ends_is_archived_when_the_last_of_its_family_has_ended(
    embedded: Embedded, archiver: Archiver
) -> None:
    before = await begun(embedded, OTHER)
    await before.end()
    following = Following(embedded, archiver)
    assert await following.step() == 1, "what had ended before is archived, too"
    parent = await begun(embedded, EXECUTION)
    child = await begun(embedded, CHILD, parent=EXECUTION)
    assert await following.step() == 0
    await parent.end()
    assert await following.step() == 0
    await child.end()
    assert await following.step() == 1
    assert await following.step() == 0
    assert await embedded.archives.get(root(EXECUTION)) is not None
    assert await embedded.archives.get(root(OTHER)) is not None


async def test_a_store_that_is_away_is_asked_again_also_by_the_next_leader(
    embedded: Embedded, archiver: Archiver, store: FailingStore
) -> None:
    following = Following(embedded, archiver)
    await following.step()
    one = await begun(embedded, EXECUTION)
    await following.step()
    await one.end()
    store.left = 3
    for leader in (following, Following(embedded, archiver)):
        store.left = 3
        with pytest.raises(Unavailable):
            await leader.step()
    store.left = -1
    assert await Following(embedded, archiver).step() == 1


async def test_what_may_still_move_is_waited_for(embedded: Embedded, archiver: Archiver) -> None:
    following = Following(embedded, archiver)
    await following.step()
    history = await whole(embedded)
    assert await following.step() == 0, "its telemetry is not sealed for good"
    family = await family_of(embedded.projections, await find(embedded.projections, history.root))
    assert not await is_settled(embedded, family)


async def test_what_can_never_be_archived_is_told_and_keeps_nobody_waiting(
    embedded: Embedded, archiver: Archiver, caplog: pytest.LogCaptureFixture
) -> None:
    following = Following(embedded, archiver)
    await following.step()
    late = await begun(embedded, EXECUTION)
    await late.end()
    assert await following.step() == 1
    await late.tell("model.checkpointed", payload={})
    other = await begun(embedded, OTHER)
    await other.end()
    with caplog.at_level(logging.ERROR):
        assert await following.step() == 1
    assert f"execution/{EXECUTION} cannot be archived: " in caplog.text
    assert await following.step() == 0
