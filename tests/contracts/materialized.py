"""What every table of a write-ahead log must do."""

from __future__ import annotations

import asyncio

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.errors import IntegrityMismatch
from noetl.kernel.event import Envelope
from noetl.ports.wal import Mark, Materialized, digest_of_key, digest_of_root
from tests.contracts.ledger import KEY, OTHER_TENANT, TENANT_STREAM, frame, keyed, write
from tests.contracts.proof import prove
from tests.unit.kernel.drafts import STAGE, STREAM, draft


def mark(seq: int, position: int) -> Mark:
    return Mark(stream="LOG", life="first", seq=seq, position=position)


class MaterializedContract:
    @pytest.fixture
    async def events(self, clock: VirtualClock) -> list[Envelope]:
        source = MemoryLedger(clock, mac_key=KEY)
        await write(source, *keyed("a"), draft())
        await write(source, frame(), stream=STAGE)
        await write(source, *keyed("b", tenant_id="globex"), stream=OTHER_TENANT)
        await write(source, draft(execution_id=None, aggregate_type="tenant"), stream=TENANT_STREAM)
        return [item.event for item in await source.read_all()]

    async def test_a_table_belongs_to_no_log_at_first(self, table: Materialized) -> None:
        standing = await table.standing()
        assert (standing.mark, standing.head.position) == (None, 0)
        assert (list((await table.known()).keys), list((await table.known()).roots)) == ([], [])

    async def test_the_first_claim_holds(self, table: Materialized) -> None:
        assert await table.claim(mark(0, 0)) == mark(0, 0)
        assert await table.claim(mark(7, 7)) == mark(0, 0)
        assert (await table.standing()).mark == mark(0, 0)

    async def test_it_can_belong_to_another_log_or_to_none(self, table: Materialized) -> None:
        await table.claim(mark(4, 0))
        await table.rebind(mark(1, 0))
        assert (await table.standing()).mark == mark(1, 0)
        await table.rebind(None)
        assert (await table.standing()).mark is None
        await table.rebind(mark(2, 0))
        assert (await table.standing()).mark == mark(2, 0)

    async def test_events_and_mark_come_together(self, table: Materialized, events: list[Envelope]) -> None:
        await table.claim(mark(0, 0))
        assert await table.materialize(events[:3], mark(2, 3)) == 3
        assert await table.materialize(events[3:], mark(5, 5)) == 2
        standing = await table.standing()
        assert (standing.mark, standing.head) == (mark(5, 5), await table.ledger_head())
        assert [item.event for item in await table.read_all()] == events
        assert await prove(table) == 5

    async def test_what_is_there_already_changes_nothing(self, table: Materialized, events: list[Envelope]) -> None:
        await table.claim(mark(0, 0))
        await table.materialize(events, mark(5, 5))
        assert await table.materialize(events[:3], mark(2, 3)) == 0
        assert (await table.standing()).mark == mark(5, 5)
        assert await prove(table) == 5

    async def test_several_at_once_do_no_harm(self, table: Materialized, events: list[Envelope]) -> None:
        await table.claim(mark(0, 0))
        written = await asyncio.gather(*(table.materialize(events[: 1 + n], mark(1 + n, 1 + n)) for n in range(5)))
        assert sum(written) == 5
        assert (await table.standing()).mark == mark(5, 5)
        assert await prove(table) == 5

    async def test_a_table_that_lacks_what_came_before_is_refused_whole(
        self, table: Materialized, events: list[Envelope]
    ) -> None:
        await table.claim(mark(0, 0))
        with pytest.raises(IntegrityMismatch, match=r"position \d.*log.*5"):
            await table.materialize(events[4:], mark(5, 5))
        standing = await table.standing()
        assert (standing.mark, standing.head.position) == (mark(0, 0), 0)

    async def test_what_it_has_can_be_remembered(self, table: Materialized, events: list[Envelope]) -> None:
        await table.claim(mark(0, 0))
        await table.materialize(events, mark(5, 5))
        known = await table.known()
        assert list(known.keys) == sorted([digest_of_key("acme", "a"), digest_of_key("globex", "b")])
        assert list(known.roots) == sorted(map(digest_of_root, (STREAM, OTHER_TENANT, TENANT_STREAM)))
