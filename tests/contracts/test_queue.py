"""The CommandQueue contract, for each adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from noetl.adapters.memory.queue import MemoryCommandQueue
from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.queue import NatsCommandQueue
from noetl.runtime.clock import SystemClock
from tests.contracts.queue import ATTEMPTS, LEASE, CommandQueueContract, Dead
from tests.services.nats import nats_server, nats_url

__all__ = ["nats_server", "nats_url"]


class TestMemoryCommandQueue(CommandQueueContract):
    @pytest.fixture
    def queue(self) -> MemoryCommandQueue:
        return MemoryCommandQueue(SystemClock(), lease_seconds=LEASE, most_attempts=ATTEMPTS)

    @pytest.fixture
    def dead(self, queue: MemoryCommandQueue) -> Dead:
        async def reasons() -> Sequence[str]:
            return [reason for _, reason in queue.dead]

        return reasons


class TestNatsCommandQueue(CommandQueueContract):
    @pytest.fixture
    async def queue(self, nats_url: str) -> AsyncIterator[NatsCommandQueue]:
        async with connect(nats_url) as connection:
            yield NatsCommandQueue(connection, lease_seconds=LEASE, most_attempts=ATTEMPTS)

    @pytest.fixture
    def dead(self, queue: NatsCommandQueue) -> Dead:
        async def reasons() -> Sequence[str]:
            return [letter.reason for letter in await queue.dead_letters()]

        return reasons
