"""What only a file can show: what others write to it, and what somebody changed in it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import Corruption, IntegrityMismatch
from noetl.kernel.event import checksum_of
from tests.contracts.proof import prove
from tests.unit.adapters.sqlite.conftest import OpenLedger
from tests.unit.kernel.drafts import STREAM, batch, draft


def tamper(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    assert connection.execute(sql).rowcount > 0
    connection.close()


async def test_a_subscriber_sees_what_another_process_writes(open_ledger: OpenLedger, clock: VirtualClock) -> None:
    reader, writer = await open_ledger(), await open_ledger()
    events = reader.subscribe()
    waiting = asyncio.ensure_future(anext(events))
    await writer.append([batch(draft())])
    while not waiting.done():
        await reader.position()
        clock.advance(0.2)
    assert (await waiting).position == 1
    await events.aclose()  # type: ignore[attr-defined]  # a generator, as far as anyone can tell


async def test_two_ledgers_on_one_file_are_one_log(open_ledger: OpenLedger) -> None:
    first, second = await open_ledger(), await open_ledger()
    for _ in range(3):
        await first.append([batch(draft())])
        await second.append([batch(draft())])
    assert await first.ledger_head() == await second.ledger_head()
    assert await prove(first) == 6


async def test_another_key_is_refused(open_ledger: OpenLedger) -> None:
    await (await open_ledger()).append([batch(draft())])
    with pytest.raises(IntegrityMismatch, match="another key"):
        await open_ledger(key=b"another key")


async def test_a_ledger_without_key_is_unkeyed(open_ledger: OpenLedger) -> None:
    ledger = await open_ledger(key=None)
    await ledger.append([batch(draft())])
    assert [head.mac for head in await ledger.heads()] == [None]
    assert await prove(ledger) == 1


async def test_a_changed_event_at_the_end_is_noticed_on_opening(open_ledger: OpenLedger, path: Path) -> None:
    (event, _) = await (await open_ledger()).append([batch(draft(payload={"n": 1}), draft())])
    tamper(path, "UPDATE event SET payload = '{\"n\":2}' WHERE position = 1")
    with pytest.raises(IntegrityMismatch, match=str(event.event_id)):
        await open_ledger()


async def test_a_missing_last_event_is_noticed_on_opening(open_ledger: OpenLedger, path: Path) -> None:
    await (await open_ledger()).append([batch(draft(), draft())])
    tamper(path, "DELETE FROM event WHERE position = 2")
    with pytest.raises(IntegrityMismatch, match="ends at position 1, its head says 2"):
        await open_ledger()


async def test_a_payload_that_is_no_longer_text_can_still_be_audited(open_ledger: OpenLedger, path: Path) -> None:
    ledger = await open_ledger()
    await ledger.append([batch(draft(payload={"n": 1}), draft())])
    tamper(path, "UPDATE event SET payload = CAST(x'7bff7d' AS TEXT) WHERE position = 1")
    changed, sound = await ledger.audit()
    assert checksum_of(changed.record) != changed.envelope_checksum
    assert checksum_of(sound.record) == sound.envelope_checksum
    with pytest.raises(Corruption):
        await ledger.read(STREAM)
    with pytest.raises(IntegrityMismatch, match=str(changed.record.event_id)):
        await open_ledger()


async def test_a_column_that_is_no_longer_text_can_still_be_audited(open_ledger: OpenLedger, path: Path) -> None:
    ledger = await open_ledger()
    await ledger.append([batch(draft())])
    tamper(path, "UPDATE event SET principal = CAST(x'ff' AS TEXT)")
    (changed,) = await ledger.audit()
    assert checksum_of(changed.record) != changed.envelope_checksum
    with pytest.raises(Corruption):
        await ledger.read(STREAM)


async def test_a_payload_that_is_no_longer_json_is_named(open_ledger: OpenLedger, path: Path) -> None:
    ledger = await open_ledger()
    (event,) = await ledger.append([batch(draft())])
    tamper(path, "UPDATE event SET payload = '{'")
    with pytest.raises(Corruption, match=f"event {event.event_id} at position 1"):
        await ledger.read_all()
