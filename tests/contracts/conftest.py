"""What the contract suites share: a clock that moves only when a test moves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.sqlite.database import Database
from tests.contracts import postgres
from tests.scribe import START

made_places = postgres.made_places
open_database = postgres.open_database
postgres_database = postgres.postgres_database
postgres_server = postgres.postgres_server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "ledger.db")
    yield opened
    opened.close()
