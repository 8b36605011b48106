"""What the tests of schedules share."""

from __future__ import annotations

import pytest

from noetl.kernel.time import parse_time
from tests.unit.runtime.schedules.almanac import Calendar
from tests.unit.runtime.workshop import Workshop, as_text, book, step


@pytest.fixture
async def calendar(shop: Workshop) -> Calendar:
    """The first of May 2026, with one playbook and no schedule."""
    document = as_text(book(step("start"), path="reports/daily"))
    for _ in range(2):
        await shop.embedded.catalog.register("acme", "reports/daily", "Playbook", document)
    shop.clock.set(parse_time("2026-05-01T00:00:00Z"))
    return Calendar(shop.embedded, shop.clock)
