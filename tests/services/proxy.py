"""A way to a server that a test can cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

__all__ = ["Proxy", "proxied"]


class Proxy:
    """Passes bytes on both ways. With a limit, a connection is cut once it has carried that many in one direction."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.cut_requests_after: int | None = None
        self.cut_answers_after: int | None = None
        self.cuts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        both = (writer, up_writer)
        self._writers.update(both)
        with contextlib.suppress(OSError):
            ways = [
                asyncio.ensure_future(self._pass(reader, up_writer, "cut_requests_after")),
                asyncio.ensure_future(self._pass(up_reader, writer, "cut_answers_after")),
            ]
            _, pending = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in pending:
                way.cancel()
        for each in both:
            self._writers.discard(each)
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

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def proxied(target: int) -> AsyncIterator[Proxy]:
    """A proxy to a port of this machine, until the block ends."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.close()
