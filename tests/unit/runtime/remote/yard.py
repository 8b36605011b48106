"""A server and workers in one process: the routes without a socket, a queue in memory, tools that are functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from noetl.adapters.memory.queue import MemoryCommandQueue
from noetl.runtime.calls import Found, prepare_call
from noetl.runtime.clock import SystemClock
from noetl.runtime.remote.bench import PlainBench
from noetl.runtime.remote.client import RemoteControlPlane
from noetl.runtime.remote.prints import Prints
from noetl.runtime.remote.queue_worker import QueueWorker
from noetl.runtime.remote.secrets import Vaults, in_hand
from noetl.runtime.remote.topology import Locality
from noetl.runtime.requeue import command_of
from noetl.runtime.worker import Worker
from noetl.tools.base import Call
from noetl.tools.http.tokens import TokenClient
from noetl.tools.registry import Registry
from tests.unit.runtime.workshop import FunctionTool
from tests.unit.server.api import Api, open_api

__all__ = ["Yard", "open_yard", "until"]


class InProcess:
    """Connections that end in the application. While it is away nobody answers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.away = False
        self.asked: list[str] = []

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self.away:
            raise ConnectionRefusedError("nobody is there")
        self.asked.append(path.rsplit("/", 1)[-1])
        headers = {"Content-Type": "application/json"}
        answer = await self._api.client.post(path, content=body, headers=headers)
        return answer.status_code, answer.content

    async def close(self) -> None:
        """There is nothing open."""


class Yard:
    """Everything at hand. `body` is what a python task does on a worker."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.api = api
        self.clock = SystemClock()
        self.queue = MemoryCommandQueue(self.clock)
        self.connections = InProcess(api)
        self.control = RemoteControlPlane(["http://127.0.0.1"], patience=0.2)
        self.control._connections = self.connections  # type: ignore[assignment]  # the one thing that is not real
        self.body: Callable[[Call], Any] = lambda call: {"step": call.step}
        self._folder = folder
        self._position = 0

    def worker(
        self,
        name: str = "w",
        *,
        concurrency: int = 2,
        lease: float = 30.0,
        pool: str = "shared",
        labels: dict[str, str] | None = None,
        locality: Locality | None = None,
    ) -> QueueWorker:
        def run(call: Call) -> Any:
            return self.body(call)  # a test may change it at any time

        registry = Registry({"python": FunctionTool("python", run)})
        vaults = Vaults(self.control, self.clock, TokenClient, {})

        async def prepare(work: Any, asked: Any) -> Any:
            async def find(path: str, version: Any) -> Found:
                return await self.control.playbook(in_hand(), path, version)

            return await prepare_call(work, asked, find)

        prints = Prints(self.clock)
        inner = PlainBench(
            Worker(registry, self.clock, prepare, self._folder, self._folder / "scratch", vaults, notice=prints.hear),
            self.clock,
        )
        control = self.control
        if labels or locality:
            control = RemoteControlPlane(["http://127.0.0.1"], patience=0.2, labels=labels, locality=locality)
            control._connections = self.connections  # type: ignore[assignment]  # as above
        return QueueWorker(
            self.queue, control, inner, self.clock, name, pools=[pool], concurrency=concurrency,
            lease_seconds=lease, wait_seconds=0.05, prints=prints,
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def working(self, *workers: QueueWorker) -> AsyncIterator[None]:
        """Workers at work, and somebody who carries commands to the queue."""
        tasks = [asyncio.create_task(one.run(drain=5.0)) for one in workers]
        carrying = asyncio.create_task(self._carry())
        try:
            yield
        finally:
            for one in workers:
                one.stop()
            await asyncio.gather(*tasks)
            carrying.cancel()
            await asyncio.gather(carrying, return_exceptions=True)

    async def carry(self) -> None:
        """Put into the queue what the log asks workers for."""
        for item in await self.api.embedded.ledger.read_all(after_position=self._position, limit=1000):
            self._position = item.position
            if (command := command_of(item.event)) is not None:
                await self.queue.enqueue([command])

    async def _carry(self) -> None:
        while True:
            await self.carry()
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    """Return when it holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is a count
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def open_yard(folder: Path, *, lease: float = 30.0) -> AsyncIterator[Yard]:
    async with open_api(folder, lease=lease) as api:
        yield Yard(api, folder)
