"""Snapshots by a policy: when they are due, that they are taken aside, and that one which is wrong goes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from noetl.errors import Corruption, Unavailable
from noetl.kernel.tail import Stream
from noetl.ports.projections import Snapshot
from noetl.replay.service import Cutoff
from noetl.runtime.snapshots import Snapshots
from noetl.settings import Amount
from noetl.settings import Snapshots as Policy
from tests.unit.kernel.drafts import STREAM, draft
from tests.unit.replay.shop import Shop

MINUTES = 60


@pytest.fixture
def shop() -> Shop:
    return Shop(snapshot_every=4)


def snapshots(shop: Shop, replayer: Any = None, **policy: int) -> Snapshots:
    given = {name: Amount(value) for name, value in {"every": 4, "on_completion": 0, "sample": 0, **policy}.items()}
    return Snapshots(replayer or shop.replayer, shop.projections, shop.kv, shop.clock, Policy(**given))


async def positions(shop: Shop, root: Stream = STREAM) -> list[int]:
    return [one.position for one in await shop.projections.snapshots(root, at_or_before=1000, limit=100)]


# --- When one is due --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "before", "after", "ended", "due"),
    [
        ({"every": 10}, 0, 9, False, False),
        ({"every": 10}, 9, 10, False, True),
        ({"every": 10}, 10, 19, False, False),
        ({"every": 10}, 8, 35, False, True),
        ({"every": 0}, 0, 100, False, False),
        ({"every": 0}, 0, 100, True, False),
        ({"every": 0, "on_completion": 50}, 0, 50, True, False),
        ({"every": 0, "on_completion": 50}, 0, 51, True, True),
        ({"every": 0, "on_completion": 50}, 0, 51, False, False),
    ],
)
def test_a_root_is_due_by_its_events_or_at_its_end(
    policy: Mapping[str, int], before: int, after: int, ended: bool, due: bool, shop: Shop
) -> None:
    assert snapshots(shop, **policy).is_due(before, after, ended=ended) is due


async def test_the_end_of_an_execution_counts_once(shop: Shop) -> None:
    shop.projector._snapshots = snapshots(shop, every=0, on_completion=3)
    await shop.run_steps(3)
    await shop.projector.catch_up()
    assert await positions(shop) == []
    await shop.write(draft("playbook.completed", payload={}))
    await shop.projector.catch_up()
    assert await positions(shop) == [5]
    await shop.write(draft("command.heartbeat", command_id=9), stream=Stream("acme", f"{STREAM.stream_id}/telemetry"))
    await shop.projector.catch_up()
    assert await positions(shop) == [5]


class Watched(Snapshots):
    """The shipped one, which says when it has taken a snapshot."""

    def __init__(self, *means: Any) -> None:
        super().__init__(*means)
        self.taken = asyncio.Event()

    async def take(self, root: Stream) -> Snapshot | None:
        taken = await super().take(root)
        self.taken.set()
        return taken


# --- Who takes it -----------------------------------------------------------------------------------------


async def test_what_one_process_leaves_another_takes_after_a_while(shop: Shop) -> None:
    await shop.run_steps(5)
    await shop.projector.catch_up(snapshots=False)
    assert await positions(shop) == []
    later = snapshots(shop)
    assert await later.take_due() == 0  # who noted it may be about to take it
    shop.clock.advance(2 * MINUTES)
    assert await later.take_due() == 1
    assert await positions(shop) == [6]
    assert await later.take_due() == 0
    assert await shop.kv.list("snapshots/") == []


async def test_a_command_that_passes_by_leaves_large_ones_to_others(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.runtime.snapshots._AT_ONCE", 5)
    await shop.run_steps(5)
    await shop.projector.catch_up()
    assert await positions(shop) == []
    taking = Watched(shop.replayer, shop.projections, shop.kv, shop.clock, Policy())
    shop.clock.advance(2 * MINUTES)
    async with taking.served(), asyncio.timeout(10):
        await taking.taken.wait()
    assert await positions(shop) == [6]


async def test_a_task_takes_what_is_noted_and_nobody_waits_for_it(shop: Shop) -> None:
    taking = shop.projector._snapshots = Watched(
        shop.replayer, shop.projections, shop.kv, shop.clock, Policy(every=Amount(4))
    )
    async with taking.served(), asyncio.timeout(10):
        await shop.run_steps(5)
        await shop.projector.catch_up()
        assert await positions(shop) == []
        await taking.taken.wait()
    assert await positions(shop) == [6]


async def test_only_the_newest_stay(shop: Shop) -> None:
    shop.projector._snapshots = snapshots(shop, every=1, keep=2)
    for _ in range(5):
        await shop.write(draft())
        await shop.projector.catch_up()
    assert await positions(shop) == [5, 4]


class _Replayer:
    """The shipped one, except for what a test says."""

    def __init__(self, shop: Shop, **said: Any) -> None:
        self._shop = shop
        self._said = said

    def __getattr__(self, name: str) -> Any:
        return self._said.get(name) or getattr(self._shop.replayer, name)


async def test_while_the_storage_is_away_it_stays_noted(shop: Shop) -> None:
    async def away(_: Stream) -> Snapshot:
        raise Unavailable("the database does not answer")

    await shop.run_steps(5)
    taking = snapshots(shop, _Replayer(shop, snapshot=away))
    await taking.note({STREAM: 6})
    with pytest.raises(Unavailable):
        await taking.take_due()
    assert len(await shop.kv.list("snapshots/")) == 1


async def test_a_root_that_cannot_be_folded_is_let_go(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(root: Stream) -> Snapshot:
        raise Corruption("event 5 cannot be read")

    taking = snapshots(shop, _Replayer(shop, snapshot=broken))
    await taking.note({STREAM: 6})
    assert await taking.take_due() == 0
    assert await shop.kv.list("snapshots/") == []
    assert "there is no snapshot of execution/4101: event 5 cannot be read" in caplog.text


async def test_taken_twice_it_is_one(shop: Shop) -> None:
    await shop.run_steps(5)
    first, second = snapshots(shop), snapshots(shop)
    for taking in (first, second):
        await taking.note({STREAM: 6})
    assert await first.take(STREAM) == await second.take(STREAM)
    assert await positions(shop) == [6]


# --- Whether it is right ----------------------------------------------------------------------------------


async def test_a_sampled_snapshot_is_compared_with_a_replay_from_nothing(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one is wrong in a way that its own checksum does not tell, so whatever is made from it is wrong too."""
    await shop.run_steps(5)
    taking = snapshots(shop, sample=1)
    wrong = await wrong_snapshot(shop)
    await shop.projections.save_snapshot(wrong)
    await shop.write(draft(node_name="later"))
    with caplog.at_level(logging.ERROR, "noetl.snapshots"):
        assert await taking.take(STREAM) is None
    assert await positions(shop) == []
    assert "the snapshot of execution/4101 at position 7 is dropped: a replay from the first event on" in caplog.text
    taken = await taking.take(STREAM)
    assert taken is not None
    assert taken.checksum == (await shop.replayer.replay(STREAM, snapshots=False)).checksum()


async def wrong_snapshot(shop: Shop) -> Snapshot:
    """The state of somebody else's run, well made and sealed, under the name of this one."""
    other = Shop()
    await other.run_steps(4)
    await other.write(draft(node_name="something else", payload={"set": {"ctx.last": 99}}))
    taken = await other.replayer.snapshot(STREAM)
    here = (await shop.replayer.replay(STREAM)).last_ingest_time
    assert taken.last_ingest_time == here
    return taken


async def test_a_snapshot_that_is_sound_is_not_refuted_and_others_are(shop: Shop) -> None:
    await shop.run_steps(5)
    taken = await shop.replayer.snapshot(STREAM)
    assert await shop.replayer.refute(taken) is None
    await shop.projections.drop_snapshots(STREAM, keep=0)
    assert await shop.replayer.refute(taken) == "it is not there any more"
    await shop.projections.save_snapshot(msgspec.structs.replace(taken, body=taken.body[:-3]))
    assert (await shop.replayer.refute(taken) or "").startswith("cannot be read")
    await shop.projections.drop_snapshots(STREAM, keep=0)
    await shop.projections.save_snapshot(msgspec.structs.replace(taken, mac="00" * 32))
    assert await shop.replayer.refute(taken) == "not sealed with this ledger's key"


async def test_about_one_in_so_many_is_sampled_whoever_takes_it(shop: Shop) -> None:
    await shop.run_steps(5)
    taken = await shop.replayer.snapshot(STREAM)
    some = [msgspec.structs.replace(taken, position=position) for position in range(1, 1001)]
    one, other = snapshots(shop, sample=10), snapshots(shop, sample=10)
    chosen = [snapshot for snapshot in some if one._is_sampled(snapshot)]
    assert chosen == [snapshot for snapshot in some if other._is_sampled(snapshot)]
    assert 50 < len(chosen) < 150
    assert not any(snapshots(shop, sample=0)._is_sampled(snapshot) for snapshot in some)


# --- What a replay says of it -----------------------------------------------------------------------------


async def test_a_replay_says_why_no_snapshot_was_used(shop: Shop) -> None:
    await shop.run_steps(5)
    assert (await shop.replayer.replay(STREAM)).no_snapshot == "there is none yet"
    taken = await shop.replayer.snapshot(STREAM)
    assert (await shop.replayer.replay(STREAM)).no_snapshot is None
    assert (await shop.replayer.replay(STREAM, snapshots=False)).no_snapshot == "none was asked for"
    early = await shop.replayer.replay(STREAM, Cutoff(position=3))
    assert early.no_snapshot == "those there are were taken later"
    resolving = await shop.replayer.replay(STREAM, resolve_payloads=1)
    assert resolving.no_snapshot == "payloads are resolved from the first event on"
    await shop.projections.drop_snapshots(STREAM, keep=0)
    await shop.projections.save_snapshot(msgspec.structs.replace(taken, fold_version=99))
    rejected = await shop.replayer.replay(STREAM)
    assert rejected.no_snapshot == "none of those there are can be used"
    assert [one.reason for one in rejected.rejected] == ["made by fold version 99, this is 1"]


async def test_one_that_cannot_be_used_makes_room_for_one_that_can(shop: Shop) -> None:
    await shop.run_steps(5)
    taken = await shop.replayer.snapshot(STREAM)
    await shop.projections.drop_snapshots(STREAM, keep=0)
    await shop.projections.save_snapshot(msgspec.structs.replace(taken, fold_version=99))
    await shop.replayer.snapshot(STREAM)
    assert (await shop.replayer.replay(STREAM)).snapshot is not None
