"""Ledgers in a directory of their own, opened as often as a test likes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from tests.scribe import START

KEY = b"the wallet's key, 32 bytes long."
OpenLedger = Callable[..., Awaitable[SqliteLedger]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "ledger.db"


@pytest.fixture
async def open_ledger(path: Path, clock: VirtualClock) -> AsyncIterator[OpenLedger]:
    """Opens the ledger at `path`, or at another place or with another key."""
    opened: list[tuple[Database, SqliteLedger]] = []

    async def open_one(at: Path = path, key: bytes | None = KEY) -> SqliteLedger:
        database = Database(at)
        ledger = SqliteLedger(database, clock, mac_key=key)
        opened.append((database, ledger))
        return await ledger.open()

    yield open_one
    for database, ledger in opened:
        await ledger.close()
        database.close()
