"""What every Outbox must do. A subclass brings the fixtures `ledger` and `outbox`, both empty, on `clock`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import VersionConflict
from noetl.ports.ledger import Ledger
from noetl.ports.outbox import Outbox, OutboxRow
from tests.unit.kernel.drafts import STREAM, batch, draft


async def commit(ledger: Ledger, count: int) -> None:
    await ledger.append([batch(*[draft(payload={"n": n}) for n in range(count)])])


def positions(rows: Sequence[OutboxRow]) -> list[int]:
    return [row.position for row in rows]


class OutboxContract:
    async def test_every_committed_event_is_claimed_in_order(self, ledger: Ledger, outbox: Outbox) -> None:
        await commit(ledger, 3)
        await commit(ledger, 2)
        rows = await outbox.claim("a")
        assert positions(rows) == [1, 2, 3, 4, 5]
        assert [row.event for row in rows] == [item.event for item in await ledger.read_all()]
        assert [row.attempts for row in rows] == [1] * 5

    async def test_what_was_not_committed_is_not_there(self, ledger: Ledger, outbox: Outbox) -> None:
        await commit(ledger, 1)
        with pytest.raises(VersionConflict):
            await ledger.append([batch(draft(), expected_version=7)])
        assert await outbox.pending_count() == 1

    async def test_a_retried_append_is_told_once(self, ledger: Ledger, outbox: Outbox) -> None:
        for _ in range(2):
            await ledger.append([batch(draft(idempotency_key="k"))])
        assert await outbox.pending_count() == 1

    async def test_adopted_events_are_told_too(self, ledger: Ledger, outbox: Outbox) -> None:
        await commit(ledger, 2)
        await ledger.adopt([item.event for item in await ledger.read(STREAM)])
        assert await outbox.pending_count() == 2

    async def test_a_claimed_row_is_nobody_elses(self, ledger: Ledger, outbox: Outbox) -> None:
        await commit(ledger, 5)
        assert positions(await outbox.claim("a", limit=2)) == [1, 2]
        assert positions(await outbox.claim("b", limit=2)) == [3, 4]
        assert positions(await outbox.claim("a")) == [5]
        assert await outbox.claim("b") == []
        assert await outbox.pending_count() == 5

    async def test_of_many_claims_at_once_each_row_goes_to_one(self, ledger: Ledger, outbox: Outbox) -> None:
        await commit(ledger, 60)
        claims = await asyncio.gather(*(outbox.claim(f"owner-{n}", limit=7) for n in range(12)))
        assert sorted(position for rows in claims for position in positions(rows)) == list(range(1, 61))

    async def test_the_claim_of_a_dead_publisher_lapses(
        self, ledger: Ledger, outbox: Outbox, clock: VirtualClock
    ) -> None:
        await commit(ledger, 2)
        await outbox.claim("a", lease_seconds=30)
        clock.advance(29.9)
        assert await outbox.claim("b") == []
        clock.advance(0.1)
        rows = await outbox.claim("b")
        assert positions(rows) == [1, 2]
        assert [row.attempts for row in rows] == [2, 2]
        assert await outbox.mark_published("a", [1, 2]) == 0
        assert await outbox.mark_failed("a", [1, 2], retry_in=1) == 0
        assert await outbox.mark_published("b", [1, 2]) == 2

    async def test_a_lapsed_claim_that_nobody_took_still_counts(
        self, ledger: Ledger, outbox: Outbox, clock: VirtualClock
    ) -> None:
        await commit(ledger, 1)
        await outbox.claim("a", lease_seconds=30)
        clock.advance(60)
        assert await outbox.mark_published("a", [1]) == 1
        assert await outbox.claim("b") == []

    async def test_a_published_row_is_never_claimed_again(
        self, ledger: Ledger, outbox: Outbox, clock: VirtualClock
    ) -> None:
        await commit(ledger, 3)
        await outbox.claim("a")
        assert await outbox.mark_published("a", [1, 3]) == 2
        assert await outbox.mark_published("a", [1, 3]) == 0
        assert await outbox.pending_count() == 1
        clock.advance(60)
        assert positions(await outbox.claim("b")) == [2]

    async def test_the_oldest_that_is_not_told_has_its_time(
        self, ledger: Ledger, outbox: Outbox, clock: VirtualClock
    ) -> None:
        assert await outbox.oldest() is None
        await commit(ledger, 1)
        clock.advance(60)
        await commit(ledger, 1)
        first, second = [item.event.ingest_time for item in await ledger.read_all()]
        await outbox.claim("a")
        assert await outbox.oldest() == first < second
        await outbox.mark_published("a", [1])
        assert await outbox.oldest() == second
        await outbox.mark_published("a", [2])
        assert await outbox.oldest() is None

    async def test_only_what_one_holds_can_be_marked(self, ledger: Ledger, outbox: Outbox) -> None:
        await commit(ledger, 3)
        await outbox.claim("a", limit=2)
        assert await outbox.mark_published("b", [1, 2, 3]) == 0
        assert await outbox.mark_published("a", [2, 3, 99]) == 1
        assert await outbox.mark_published("a", []) == 0
        assert await outbox.mark_failed("a", [], retry_in=1) == 0
        assert await outbox.pending_count() == 2

    async def test_a_failed_row_is_due_again_after_its_delay(
        self, ledger: Ledger, outbox: Outbox, clock: VirtualClock
    ) -> None:
        await commit(ledger, 2)
        await outbox.claim("a")
        assert await outbox.mark_failed("a", [1, 2], retry_in=5) == 2
        assert await outbox.mark_published("a", [1]) == 0
        clock.advance(4.9)
        assert await outbox.claim("b") == []
        clock.advance(0.1)
        rows = await outbox.claim("b")
        assert [(row.position, row.attempts) for row in rows] == [(1, 2), (2, 2)]

    async def test_settled_rows_are_forgotten_published_or_not(self, ledger: Ledger, outbox: Outbox) -> None:
        await commit(ledger, 5)
        await outbox.claim("a", limit=2)
        await outbox.mark_published("a", [1])
        assert await outbox.settle(3) == 3
        assert await outbox.settle(3) == 0
        assert await outbox.pending_count() == 2
        assert positions(await outbox.claim("b")) == [4, 5]
        assert await outbox.mark_published("a", [2]) == 0

    async def test_a_wait_ends_when_rows_have_come(self, ledger: Ledger, outbox: Outbox) -> None:
        await outbox.wait(0)
        waiting = asyncio.ensure_future(outbox.wait(30))
        await commit(ledger, 1)
        async with asyncio.timeout(10):
            await waiting

    async def test_rows_that_came_before_a_wait_are_not_waited_for(self, ledger: Ledger, outbox: Outbox) -> None:
        await commit(ledger, 1)
        await outbox.claim("a")
        await outbox.wait(0)
        await commit(ledger, 1)
        async with asyncio.timeout(10):
            await outbox.wait(30)

    async def test_a_wait_in_vain_ends_by_itself(self, outbox: Outbox) -> None:
        async with asyncio.timeout(10):
            await outbox.wait(0.01)
            await outbox.wait(0.01)

    async def test_an_empty_outbox_answers(self, outbox: Outbox) -> None:
        assert await outbox.claim("a") == []
        assert await outbox.pending_count() == 0
        assert await outbox.settle(10) == 0
