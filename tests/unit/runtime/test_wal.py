"""What a log on JetStream needs to be told, and what waits in its outbox."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.outbox import MemoryOutbox
from noetl.errors import InvalidSetting
from noetl.runtime.wal import LaterOutbox, check_mode
from noetl.settings import DatabaseUrl, Ledger, Nats, Settings
from tests.scribe import START
from tests.unit.kernel.drafts import batch, draft

URL = DatabaseUrl("postgresql://db/noetl")


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (Settings(ledger=Ledger(mode="wal"), nats=Nats(url="nats://n")), "ledger.url"),
        (Settings(ledger=Ledger(mode="wal", url=URL)), "nats.url"),
    ],
)
def test_what_is_missing_is_named_with_its_fix(settings: Settings, missing: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{missing} is not set") as refused:
        check_mode(settings)
    assert missing in (refused.value.hint or "")


def test_with_both_it_is_fine() -> None:
    check_mode(Settings(ledger=Ledger(mode="wal", url=URL), nats=Nats(url="nats://n")))


async def test_what_is_not_copied_waits_too() -> None:
    clock = VirtualClock(START)
    log, table = MemoryLedger(clock), MemoryLedger(clock)
    outbox = LaterOutbox(MemoryOutbox(table, clock), log, table)
    await log.append([batch(draft(), draft(), draft())])
    assert await outbox.pending_count() == 3
    await table.adopt([item.event for item in await log.read_all(limit=2)])
    rows = await outbox.claim("me")
    assert [row.position for row in rows] == [1, 2]
    assert await outbox.mark_failed("me", [2], retry_in=0) == 1
    assert await outbox.mark_published("me", [1]) == 1
    assert await outbox.pending_count() == 2
    assert await outbox.settle(1) == 1
