"""The contract of a log's table, for each adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.materialized import MemoryMaterialized
from noetl.adapters.postgres.materialized import PostgresMaterialized, check_not_materialized
from noetl.errors import InvalidInput
from noetl.ports.wal import Materialized
from tests.contracts.ledger import KEY
from tests.contracts.materialized import MaterializedContract, mark
from tests.contracts.postgres import OpenDatabase


class TestMemoryMaterialized(MaterializedContract):
    @pytest.fixture
    def table(self, clock: VirtualClock) -> Materialized:
        return MemoryMaterialized(clock, mac_key=KEY)


class TestPostgresMaterialized(MaterializedContract):
    @pytest.fixture
    async def table(self, open_database: OpenDatabase, clock: VirtualClock) -> AsyncIterator[PostgresMaterialized]:
        table = await PostgresMaterialized(await open_database("table"), clock, mac_key=KEY).open()
        yield table
        await table.close()

    async def test_who_would_write_past_the_log_is_refused(self, table: PostgresMaterialized) -> None:
        await check_not_materialized(table)
        await table.claim(mark(0, 0))
        with pytest.raises(InvalidInput, match="stream LOG") as refused:
            await check_not_materialized(table)
        assert 'ledger.mode = "wal"' in (refused.value.hint or "")
