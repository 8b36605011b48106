"""A way to a server that a test can cut."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from collections.abc import AsyncIterator

__all__ = ["Proxy", "proxied"]


class Proxy:
    """Passes bytes on both ways. With a limit, a connection is cut once it has carried that many in one direction."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cut_requests_after: int | None = None
        self.cut_answers_after: int | None = None
        self.cuts = 0

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = [writer]
        try:
            with contextlib.suppress(OSError):
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
                opened.append(up_writer)
                async with asyncio.TaskGroup() as ways:
                    requests = ways.create_task(self._pass(reader, up_writer, "cut_requests_after"))
                    answers = ways.create_task(self._pass(up_reader, writer, "cut_answers_after"))
                    await asyncio.wait([requests, answers], return_when=asyncio.FIRST_COMPLETED)
                    requests.cancel()
                    answers.cancel()
        finally:
            for each in opened:
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: str) -> None:
        carried = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                carried += len(data)
                most = getattr(self, limit)
                if most is not None and carried > most:
                    self.cuts += 1
                    return
                writer.write(data)
                await writer.drain()

    async def close(self) -> None:
        """Cut everything; a connection that is aborted is closed in the turn of the event loop after that."""
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def proxied(target: int) -> AsyncIterator[Proxy]:
    """A proxy to a port of this machine, until the block ends."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        _let_go()


def _let_go() -> None:
    """A client of NATS whose connection is cut while it greets the server leaves the stream to the collector."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <StreamWriter", ResourceWarning)
        gc.collect()
