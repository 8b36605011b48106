"""The Fabric contract, for each adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noetl.adapters.memory.fabric import MemoryFabric
from noetl.adapters.nats.connection import Connection, connect
from noetl.adapters.nats.fabric import NatsFabric
from noetl.adapters.nats.streams import Topology
from noetl.runtime.clock import SystemClock
from tests.contracts.fabric import FabricContract
from tests.services.nats import nats_server, nats_url

__all__ = ["nats_server", "nats_url"]


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


class NatsFault:
    """Does by hand what operators and crashes do to a stream."""

    def __init__(self, connection: Connection, topology: Topology) -> None:
        self._streams = connection.streams
        self._names = topology.events

    async def purge(self) -> None:
        for name in self._names:
            await self._streams.purge_stream(name)

    async def wipe(self) -> None:
        for name in self._names:
            await self._streams.delete_stream(name)

    async def cut(self, after: int) -> None:
        for name in self._names:
            last = (await self._streams.stream_info(name)).state.last_seq
            for number in range(after + 1, last + 1):
                await self._streams.delete_msg(name, number)


class TestNatsFabric(FabricContract):
    @pytest.fixture
    async def connection(self, nats_url: str) -> AsyncIterator[Connection]:
        async with connect(nats_url) as connection:
            yield connection

    @pytest.fixture
    def fabric(self, connection: Connection) -> NatsFabric:
        return NatsFabric(connection, window=64)

    @pytest.fixture
    def fault(self, connection: Connection, fabric: NatsFabric) -> NatsFault:
        return NatsFault(connection, fabric.streams.topology)
