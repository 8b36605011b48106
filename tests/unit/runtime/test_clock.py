"""The machine's clock."""

from __future__ import annotations

import time

from noetl.runtime.clock import SystemClock


def test_it_counts_microseconds_since_1970() -> None:
    before = time.time_ns() // 1000
    now = SystemClock().now()
    assert before <= now <= time.time_ns() // 1000


async def test_it_sleeps() -> None:
    await SystemClock().sleep(0)
