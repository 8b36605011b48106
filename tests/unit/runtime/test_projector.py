"""The projector follows the log by position: it repeats work after a crash, and never skips any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from noetl.kernel.tail import Stream
from noetl.runtime.projector import PROJECTOR, CaughtUp, Projector
from tests.golden.produce import produce
from tests.unit.kernel.drafts import STREAM, draft
from tests.unit.replay.shop import Shop

OTHER = Stream("acme", "execution/7")


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def prove(shop: Shop, *roots: Stream) -> None:
    for root in roots:
        found = await shop.verifier.verify(root)
        assert found.ok, (found.problems, found.differences)
        assert found.projected_to == await shop.ledger.position()


async def test_an_empty_ledger_has_nothing_to_project(shop: Shop) -> None:
    assert await shop.projector.catch_up() == CaughtUp(events=0, position=0)


async def test_rows_are_what_a_replay_gives(shop: Shop) -> None:
    await shop.run_steps(5)
    await shop.run_steps(2, stream=OTHER)
    assert await shop.projector.catch_up() == CaughtUp(events=9, position=9)
    await prove(shop, STREAM, OTHER)


async def test_only_what_is_new_is_projected(shop: Shop) -> None:
    await shop.run_steps(3)
    await shop.projector.catch_up()
    await shop.write(draft())
    assert await shop.projector.catch_up() == CaughtUp(events=1, position=5)
    assert await shop.projector.catch_up() == CaughtUp(events=0, position=5)
    await prove(shop, STREAM)


@pytest.mark.parametrize("page", [1, 3, 7, 1000])
async def test_pages_of_any_size_give_the_same_rows(page: int, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.runtime.projector._PAGE", page)
    logs = produce()
    for events in logs.values():
        await shop.ledger.adopt(events)
    total = sum(map(len, logs.values()))
    assert await shop.projector.catch_up() == CaughtUp(events=total, position=total)
    roots = [root async for root in shop.verifier.roots()]
    assert len(roots) == len(logs)
    await prove(shop, *roots)


async def test_what_is_projected_is_settled(shop: Shop) -> None:
    await shop.run_steps(3)
    assert await shop.outbox.pending_count() == 4
    await shop.projector.catch_up()
    assert await shop.outbox.pending_count() == 0


class _Crash(Exception):
    """The power went."""


class _CrashingOutbox:
    """Dies where the projector is most exposed: rows and checkpoint are saved, the outbox is not settled."""

    async def settle(self, position: int) -> int:
        raise _Crash


class _CrashingProjections:
    """Dies before, or right after, the n-th save."""

    def __init__(self, shop: Shop, after: int, *, saved: bool) -> None:
        self._shop, self._after, self._saved = shop, after, saved

    async def save(self, rows: Sequence[Any], **options: Any) -> Any:
        self._after -= 1
        if self._after == 0 and not self._saved:
            raise _Crash
        await self._shop.projections.save(rows, **options)
        if self._after == 0:
            raise _Crash

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shop.projections, name)


def projector(shop: Shop, *, projections: Any = None, outbox: Any = None) -> Projector:
    return Projector(
        shop.ledger, projections or shop.projections, outbox or shop.outbox, shop.registry, snapshots=shop.snapshots
    )


async def test_a_crash_between_save_and_settle_repeats_nothing_wrong(shop: Shop) -> None:
    await shop.run_steps(4)
    with pytest.raises(_Crash):
        await projector(shop, outbox=_CrashingOutbox()).catch_up()
    assert await shop.projections.checkpoint(PROJECTOR) == 5
    await shop.write(draft())
    assert await shop.projector.catch_up() == CaughtUp(events=1, position=6)
    assert await shop.outbox.pending_count() == 0
    await prove(shop, STREAM)


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("page", [1, 2, 3])
async def test_a_crash_at_any_page_is_made_good(
    page: int, saved: bool, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.runtime.projector._PAGE", 3)
    await shop.run_steps(4)
    await shop.run_steps(3, stream=OTHER)
    crashing = projector(shop, projections=_CrashingProjections(shop, page, saved=saved))
    with pytest.raises(_Crash):
        await crashing.catch_up()
    await shop.projector.catch_up()
    await prove(shop, STREAM, OTHER)


async def test_two_projectors_do_not_disturb_each_other(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower one finds rows of a later version in its way, and leaves them."""
    monkeypatch.setattr("noetl.runtime.projector._PAGE", 2)
    await shop.run_steps(5)

    class Overtaken:
        overtaken = False

        async def save(self, rows: Sequence[Any], **options: Any) -> Any:
            if not self.overtaken:
                self.overtaken = True
                await shop.projector.catch_up()
            return await shop.projections.save(rows, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(shop.projections, name)

    await projector(shop, projections=Overtaken()).catch_up()
    await prove(shop, STREAM)


@pytest.mark.parametrize(("every", "positions"), [(1000, []), (6, [6]), (5, [6]), (2, [6]), (7, [])])
async def test_a_snapshot_is_taken_when_it_is_due(every: int, positions: list[int]) -> None:
    shop = Shop(snapshot_every=every)
    await shop.run_steps(5)
    await shop.projector.catch_up()
    taken = await shop.projections.snapshots(STREAM, at_or_before=100)
    assert [snapshot.position for snapshot in taken] == positions


async def test_snapshots_count_an_executions_own_events() -> None:
    shop = Shop(snapshot_every=4)
    for number in range(6):
        await shop.write(draft(payload={"n": number}))
        await shop.run_steps(0, stream=Stream("acme", f"execution/{100 + number}"))
        await shop.projector.catch_up()
    taken = await shop.projections.snapshots(STREAM, at_or_before=100)
    assert [(snapshot.event_count, snapshot.position) for snapshot in taken] == [(4, 7)]
    assert (await shop.replayer.replay(STREAM)).events_folded == 2
