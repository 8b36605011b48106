"""What every reader of a ledger's plain rows promises, whichever database it reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa
import pytest

from noetl.data.lake.layout import SCHEMA, batch_of
from noetl.data.source.events import Span, batches
from noetl.data.source.log import EventLog, Term
from noetl.errors import Corruption, InvalidInput, NotFound
from noetl.kernel.stamp import Stream
from noetl.kernel.streams import execution_stream
from noetl.ports.ledger import Ledger
from tests.unit.kernel.drafts import batch, draft

__all__ = ["EventLogContract", "Read"]

Read = Callable[[], EventLog]
Change = Callable[[str], Awaitable[None]]


class EventLogContract:
    """Subclasses bring `ledger`, that is written, `read`, that opens what is tested, and `change`, that runs SQL."""

    table, bytes, hex = "event", "BLOB", "x'%s'"

    async def fill(self, ledger: Ledger) -> None:
        """Seven events of two tenants, their executions by turns."""
        for number in range(7):
            tenant = "acme" if number % 3 else "other"
            stream = Stream(tenant, execution_stream(number % 3 + 1))
            one = draft("step.enter", tenant_id=tenant, execution_id=number % 3 + 1, payload={"n": number, "w": "köln"})
            await ledger.append([batch(one, stream=stream)])

    async def test_a_ledger_without_events_has_none(self, ledger: Ledger, read: Read) -> None:
        with read() as log:
            assert (log.head(), log.checksum(1), list(log.pages(["event_id"], (), 0, 0))) == (0, None, [])

    async def test_rows_are_the_events(self, ledger: Ledger, read: Read) -> None:
        await self.fill(ledger)
        with read() as log:
            found = list(batches(log, SCHEMA, (), Span(0, log.head())))
        expected = await ledger.read_all(limit=10)
        assert pa.Table.from_batches(found).combine_chunks().equals(pa.Table.from_batches([batch_of(expected)]))

    async def test_positions_and_checksums(self, ledger: Ledger, read: Read) -> None:
        await self.fill(ledger)
        expected = {item.position: item.event.envelope_checksum for item in await ledger.read_all(limit=10)}
        with read() as log:
            assert (log.head(), log.checksum(3)) == (7, expected[3])
            assert dict(one for page in log.checksums(0, 7) for one in page) == expected
            assert sorted(one for page in log.checksums(2, 4) for one in page) == [(n, expected[n]) for n in (3, 4)]

    async def test_conditions_are_checked_where_the_rows_are(self, ledger: Ledger, read: Read) -> None:
        await self.fill(ledger)
        of_one = (Term("tenant_id", "=", "acme"), Term("execution_id", "in", (2, 3)), Term("position", ">", 2))
        with read() as log:
            assert [row for page in log.pages(["position"], of_one, 0, 7) for row in page] == [(3,), (5,), (6,)]
            assert log.cuts(of_one, 0, 7, 2) == [5]
            assert (log.nth(of_one, 0, 7, 3), log.nth(of_one, 0, 7, 4)) == (6, None)
            nobody = (Term("parent_execution_id", "is not null"),)
            assert list(log.pages(["position"], nobody, 0, 7)) == []
            with pytest.raises(InvalidInput, match="cannot be chosen by"):
                log.nth((Term("1=1; --", "="),), 0, 7, 1)

    async def test_a_missing_event_is_named(self, ledger: Ledger, read: Read, change: Change) -> None:
        await self.fill(ledger)
        await change(f"DELETE FROM {self.table} WHERE position = 4")
        with read() as log, pytest.raises(Corruption, match="no event at position 4, though it has committed up to 7"):
            list(log.pages(["position"], (), 0, 7))

    async def test_an_event_that_has_left_for_an_archive_is_another_matter(
        self, ledger: Ledger, read: Read, change: Change
    ) -> None:
        await self.fill(ledger)
        expected = {item.position: item.event.envelope_checksum for item in await ledger.read_all(limit=10)}
        await change(
            f"CREATE TABLE IF NOT EXISTS forgotten_run (first_position BIGINT, last_position BIGINT, tenant_id TEXT, "
            f"root TEXT, checksums {self.bytes})"
        )
        await change(f"INSERT INTO forgotten_run VALUES (4, 5, 'acme', 'r', {self.hex % (expected[4] + expected[5])})")
        await change(f"DELETE FROM {self.table} WHERE position IN (4, 5)")
        try:
            with read() as log:
                assert dict(one for page in log.checksums(0, 7) for one in page) == expected
                assert min(one for page in log.checksums(4, 7) for one in page) == (5, expected[5])
                with pytest.raises(NotFound, match=r"position 4 has left .* for an archive"):
                    list(log.pages(["position"], (), 0, 7))
        finally:
            await change("DELETE FROM forgotten_run")

    async def test_fields_of_a_later_release_are_seen(self, ledger: Ledger, read: Read, change: Change) -> None:
        await self.fill(ledger)
        await change(f'ALTER TABLE {self.table} ADD COLUMN "a 100%% ""new"" one" TEXT'.replace("%%", "%"))
        try:
            with read() as log:
                assert log.other_columns() == ('a 100% "new" one',)
                assert next(iter(log.pages(['a 100% "new" one'], (), 0, 2))) == [(None,), (None,)]
        finally:
            await change(f'ALTER TABLE {self.table} DROP COLUMN "a 100% ""new"" one"')

    async def test_nothing_can_be_written(self, ledger: Ledger, read: Read) -> None:
        await self.fill(ledger)
        with read() as log:
            connection = log._connection  # type: ignore[attr-defined]
            with pytest.raises(Exception, match=r"read-?only"):
                connection.execute(f"DELETE FROM {self.table}")
