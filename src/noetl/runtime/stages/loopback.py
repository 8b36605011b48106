"""A listener on the loopback address for slots in other processes of this machine, while there is one to serve.

Importing a web framework costs more than a short run. What executors send is always the same: a POST with a length
and a body of JSON, on connections that stay open. That is all this understands.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from http import HTTPStatus

import msgspec

from noetl.data.frame.protocol import FrameTerminal
from noetl.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NoetlError,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from noetl.kernel.event import Json
from noetl.runtime.stages.door import Door

__all__ = ["Loopback", "problem"]

_HOST = "127.0.0.1"
_MOST_BODY = 16 << 20
_MOST_HEAD = 64 << 10
_STATUSES: tuple[tuple[type[NoetlError], HTTPStatus], ...] = (
    (Unauthenticated, HTTPStatus.UNAUTHORIZED),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (FrameTerminal, HTTPStatus.CONFLICT),
    (Conflict, HTTPStatus.CONFLICT),
    (InvalidInput, HTTPStatus.UNPROCESSABLE_ENTITY),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)
_log = logging.getLogger("noetl.stages")


class Loopback:
    """Stands before a door, at a port that the system chooses."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._servers: dict[str, asyncio.Server] = {}
        self._talks: set[asyncio.Task[None]] = set()

    async def url(self, host: str | None = None) -> str:
        """Where it listens; from the first time this is asked. Beyond loopback only at a `host` that is named."""
        name = host or _HOST
        if name not in self._servers:
            self._servers[name] = await asyncio.start_server(self._talk, name, 0, limit=_MOST_HEAD)
        port = self._servers[name].sockets[0].getsockname()[1]
        return f"http://{f'[{name}]' if ':' in name else name}:{port}"

    async def close(self) -> None:
        """Listen no more, and end every conversation."""
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            server.close()
        for talk in list(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        for server in servers:
            await server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            while (request := await _request(reader)) is not None:
                status, body = await self._answer(*request)
                writer.write(_head(status, len(body)) + body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # whoever it was is gone, or does not speak HTTP: nothing to answer
        except asyncio.CancelledError:
            pass  # by close; who made this task is the listener, and does not wait for it
        finally:
            self._talks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, method: str, path: str, authorization: str, body: bytes) -> tuple[HTTPStatus, bytes]:
        try:
            if method != "POST":
                raise NotFound(f"there is nothing to {method[:20]} here")
            return HTTPStatus.OK, await self._door.answer(path, authorization, body)
        except NoetlError as error:
            return problem(error)
        except Exception as error:  # the listener must live on, and the slot must not wait
            _log.error("a request of a slot failed", exc_info=error)
            return problem(NoetlError("something went wrong on our side; the log has it"))


def problem(error: NoetlError) -> tuple[HTTPStatus, bytes]:
    """An error as problem details (RFC 9457)."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
    said: Json = {"type": "about:blank", "title": type(error).__name__, "status": status, "detail": error.message}
    if error.hint is not None:
        said["hint"] = error.hint
    if isinstance(error, FrameTerminal):
        said |= {"type": "frame_already_terminal", "event_id": str(error.event_id)}
    return status, msgspec.json.encode(said)


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, str, bytes] | None:
    """Method, path, authorization and body; None at the end of the conversation. Raises ValueError for what is none."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= _MOST_BODY or "transfer-encoding" in headers:
        raise ValueError("a body of this kind is not read here")
    return method, path, headers.get("authorization", ""), await reader.readexactly(length)


def _head(status: HTTPStatus, length: int) -> bytes:
    kind = "application/json" if status == HTTPStatus.OK else "application/problem+json"
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()
