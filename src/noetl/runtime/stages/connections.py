"""Connections of slots to the keeper of their stage: a few that stay open, one request at a time on each.

All that is ever sent is a POST with a body, and all that comes back is a status and a body of a known length. A
general HTTP client spends more time on such a request than the keeper does.
"""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

from noetl.errors import InvalidInput

__all__ = ["Connections"]

_MOST_HEAD = 64 << 10
_PORTS = {"http": 80, "https": 443}
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Connections:
    """Connections to one address, opened when they are needed."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or parts.hostname is None:
            raise InvalidInput(f"'{url}' is not the address of a keeper", hint="for example http://127.0.0.1:8082")
        self._host, self._port = parts.hostname, parts.port or _PORTS[parts.scheme]
        self._is_secure = parts.scheme == "https"
        self._base = parts.path.rstrip("/")
        self._head = "".join(f"{name}: {value}\r\n" for name, value in {"Host": parts.netloc, **headers}.items())
        self._idle: list[_Streams] = []

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises OSError, EOFError or ValueError when there is none to be had."""
        reader, writer = self._idle.pop() if self._idle else await self._open()
        is_answered = False
        try:
            head = f"POST {self._base}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode("latin-1") + body)
            await writer.drain()
            status, answer, is_kept = await _answer(reader)
            is_answered = is_kept
            return status, answer
        finally:
            if is_answered:
                self._idle.append((reader, writer))
            else:
                writer.close()  # what may still come on it is the answer to a question that nobody asks any more

    async def close(self) -> None:
        """Close what is open."""
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _open(self) -> _Streams:
        return await asyncio.open_connection(self._host, self._port, ssl=self._is_secure or None, limit=_MOST_HEAD)


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(first.split(" ", 2)[1])
    body = await reader.readexactly(int(headers["content-length"]))
    return status, body, headers.get("connection", "").lower() != "close"
