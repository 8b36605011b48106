"""Workshops: everything around one ledger, in memory and in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.runtime.workshop import Workshop, memory_workshop, sqlite_workshop


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    """On a ledger in memory."""
    async with memory_workshop(tmp_path) as made:
        yield made


@pytest.fixture(params=["memory", "sqlite"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Workshop]:
    """On each kind of ledger."""
    make = memory_workshop if request.param == "memory" else sqlite_workshop
    async with make(tmp_path) as made:
        yield made
