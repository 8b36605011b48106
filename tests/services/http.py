"""A real HTTP server in the test's own loop, which remembers what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

__all__ = ["Seen", "Server", "serving"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Seen:
    """One request as the server saw it."""

    def __init__(self, request: web.Request, body: bytes) -> None:
        self.method = request.method
        self.path = request.path
        self.raw = request.raw_path
        self.query = [(key, value) for key, value in request.query.items()]
        self.headers = request.headers
        self.body = body
        self.peer: Any = request.transport.get_extra_info("peername") if request.transport else None


class Server:
    """Answers every path with what `answers` holds for it, else with 200 and nothing."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.answers: dict[str, Handler] = {}
        self.arrived = asyncio.Event()
        self.url = ""
        self.port = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(Seen(request, await request.read()))
        self.arrived.set()
        answer = self.answers.get(request.path)
        return await answer(request) if answer else web.Response()

    def answer(self, path: str, status: int = 200, **kwargs: Any) -> None:
        """From now on answer `path` with this."""

        async def handler(_: web.Request) -> web.Response:
            return web.Response(status=status, **kwargs)

        self.answers[path] = handler

    @property
    def last(self) -> Seen:
        return self.seen[-1]


@asynccontextmanager
async def serving(*, context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Server]:
    """A server on a port of its own, until the block ends."""
    server = Server()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0, ssl_context=context)
    await site.start()
    server.port = runner.addresses[0][1]
    server.url = f"{'https' if context else 'http'}://{host}:{server.port}"
    try:
        yield server
    finally:
        await runner.cleanup()
