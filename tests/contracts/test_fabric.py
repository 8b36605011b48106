"""The Fabric contract, for each adapter."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.fabric import MemoryFabric
from noetl.runtime.clock import SystemClock
from tests.contracts.fabric import FabricContract


class MemoryFault:
    def __init__(self, fabric: MemoryFabric) -> None:
        self._fabric = fabric

    async def purge(self) -> None:
        self._fabric.lose()

    async def wipe(self) -> None:
        self._fabric.lose(whole=True)

    async def cut(self, after: int) -> None:
        self._fabric.lose(after=after)


class TestMemoryFabric(FabricContract):
    @pytest.fixture
    def fabric(self) -> MemoryFabric:
        return MemoryFabric(SystemClock())

    @pytest.fixture
    def fault(self, fabric: MemoryFabric) -> MemoryFault:
        return MemoryFault(fabric)
