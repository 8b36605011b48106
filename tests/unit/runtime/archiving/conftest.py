"""A home whose executions are archived, and a store that fails when it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.runtime.wiring import Embedded
from tests.unit.archive.bundle.golden import FailingStore
from tests.unit.runtime.histories import home_at


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with home_at(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def store() -> FailingStore:
    return FailingStore(-1)
