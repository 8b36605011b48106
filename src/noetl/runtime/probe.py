"""A small page about a process that serves nothing else: is it well, what has it counted, how far is it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import msgspec

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Json
from noetl.observe import metrics
from noetl.observe.prometheus import CONTENT_TYPE, PrometheusRecorder

__all__ = ["Summary", "probed"]

Summary = Callable[[], Awaitable[Json]]
_MOST_HEAD = 16 << 10
_PATIENCE = 5.0


@contextlib.asynccontextmanager
async def probed(
    host: str, port: int, summary: Summary, levels: Callable[[PrometheusRecorder], Awaitable[None]]
) -> AsyncIterator[int]:
    """Answer `/live`, `/health`, `/metrics` and `/summary` until the end; gives the port, which is any free one for 0.

    `summary` says how it is, with `ok` among it; `levels` sets the gauges that are looked up when somebody asks.
    """
    recorder = PrometheusRecorder()

    async def answer(path: str) -> tuple[HTTPStatus, str, bytes]:
        if path == "/live":
            return HTTPStatus.OK, "application/json", b'{"ok": true}'
        if path == "/metrics":
            await levels(recorder)
            return HTTPStatus.OK, CONTENT_TYPE, recorder.text()
        if path in ("/health", "/summary"):
            found = await summary()
            status = HTTPStatus.OK if found["ok"] or path == "/summary" else HTTPStatus.SERVICE_UNAVAILABLE
            return status, "application/json", msgspec.json.encode({"ok": found["ok"]} if path == "/health" else found)
        return HTTPStatus.NOT_FOUND, "application/json", b'{"detail": "/live, /health, /metrics and /summary are here"}'

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                method, _, rest = head.decode("latin-1").partition(" ")
                path = rest.partition(" ")[0].partition("?")[0]
                try:
                    status, kind, body = await answer(path)
                except NoetlError as error:
                    status, kind = HTTPStatus.SERVICE_UNAVAILABLE, "application/json"
                    body = msgspec.json.encode({"ok": False, "detail": error.message})
                lines = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                lines += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                writer.write(lines.encode() + (b"" if method == "HEAD" else body))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(talk, host, port, limit=_MOST_HEAD)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="another program has it; choose another port"
        ) from None
    metrics.install(recorder)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        metrics.uninstall()
        server.close()
        await server.wait_closed()
