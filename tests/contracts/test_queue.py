"""The CommandQueue contract, for each adapter."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from noetl.adapters.memory.queue import MemoryCommandQueue
from noetl.runtime.clock import SystemClock
from tests.contracts.queue import ATTEMPTS, LEASE, CommandQueueContract, Dead


class TestMemoryCommandQueue(CommandQueueContract):
    @pytest.fixture
    def queue(self) -> MemoryCommandQueue:
        return MemoryCommandQueue(SystemClock(), lease_seconds=LEASE, most_attempts=ATTEMPTS)

    @pytest.fixture
    def dead(self, queue: MemoryCommandQueue) -> Dead:
        async def reasons() -> Sequence[str]:
            return [reason for _, reason in queue.dead]

        return reasons
