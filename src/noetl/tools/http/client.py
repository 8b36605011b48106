"""Connections: kept warm, bounded, and never opened to an address that is blocked."""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path
from typing import BinaryIO

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from noetl.payloads.blocking import in_thread, regroup, storage_errors
from noetl.tools.http.addresses import BlockedAddress, is_blocked_address, is_blocked_host
from noetl.tools.http.answer import Answer, LargeBody
from noetl.tools.http.limits import Limits
from noetl.tools.http.request import Request

__all__ = ["Client", "TooLarge", "TooManyRedirects"]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 10
_CHUNK = 1 << 16
_OF_A_BODY = frozenset({"content-type", "content-encoding", "content-language"})


class TooLarge(Exception):
    """The body passed what may be stored."""


class TooManyRedirects(Exception):
    """They lead in a circle, or nearly."""

    def __init__(self) -> None:
        super().__init__("the redirects do not come to an end")


class Client:
    """The connections of one event loop."""

    def __init__(self, limits: Limits, *, allow_link_local: bool, resolver: AbstractResolver | None = None) -> None:
        self._limits = limits
        self._guarded = not allow_link_local
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limits.connections,
                limit_per_host=limits.per_host,
                keepalive_timeout=limits.keep_alive,
                resolver=resolver,
                socket_factory=self._socket,
            ),
            # Tasks share nothing: a cookie that one of them was given is not for the next.
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={"User-Agent": "noetl"},
        )

    async def send(self, request: Request, scratch: Path) -> Answer:
        """Send it, follow where it is allowed to, and read the answer to its end."""
        started = time.monotonic()
        url = URL(request.url, encoded=True)
        response = await self._asked(request.method, url, request.headers, request.body, request.verify)
        moved_to: URL | None = None
        if request.follow:
            response, moved_to = await self._followed(request, url, response)
        headers = _headers(response)
        try:
            is_short = self._is_short(headers)
            body = await (response.read() if is_short else self._read(response, scratch))
        finally:
            response.release()
        return Answer(
            status=response.status,
            reason=response.reason or "",
            headers=headers,
            url=request.public if moved_to is None or str(moved_to) == request.url else str(moved_to),
            body=body,
            charset=response.charset if "charset" in headers.get("content-type", "").lower() else None,
            elapsed=round(time.monotonic() - started, 6),
        )

    async def close(self) -> None:
        """Close every connection."""
        await self.session.close()

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Called with what is about to be connected to: after DNS, and for plain addresses and redirects alike."""
        family, kind, protocol, _, place = address
        if self._guarded and is_blocked_address(str(place[0])):
            raise BlockedAddress
        return socket.socket(family, kind, protocol)

    def _asked(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, verify: bool
    ) -> Awaitable[aiohttp.ClientResponse]:
        """One request, whatever its answer. Raises BlockedAddress."""
        if self._guarded and is_blocked_host(url.host or ""):
            raise BlockedAddress
        return self.session.request(method, url, headers=headers, data=body, allow_redirects=False, ssl=verify)

    async def _followed(
        self, request: Request, url: URL, response: aiohttp.ClientResponse
    ) -> tuple[aiohttp.ClientResponse, URL | None]:
        """The last answer and, after redirects, where it came from."""
        method, headers, body = request.method, request.headers, request.body
        moved_to: URL | None = None
        left = _MOST_REDIRECTS
        while (target := _target(response, url)) is not None:
            response.release()
            if not left:
                raise TooManyRedirects
            left -= 1
            left_out = request.private if target.origin() != url.origin() else frozenset()
            if _becomes_get(response.status, method):
                method, body, left_out = "GET", None, left_out | _OF_A_BODY
            headers = {name: value for name, value in headers.items() if name.lower() not in left_out}
            url = moved_to = target
            response = await self._asked(method, url, headers, body, request.verify)
        return response, moved_to

    def _is_short(self, headers: Mapping[str, str]) -> bool:
        """Whether a body surely is one that may be held in memory."""
        length = headers.get("content-length", "")
        return length.isdecimal() and int(length) <= self._limits.in_memory and "content-encoding" not in headers

    async def _read(self, response: aiohttp.ClientResponse, scratch: Path) -> bytes | LargeBody:
        pieces = response.content.iter_chunked(_CHUNK)
        held = bytearray()
        async for piece in pieces:
            held += piece
            if len(held) > self._limits.in_memory:
                if self._limits.in_file <= self._limits.in_memory:
                    raise TooLarge(f"the body is larger than {self._limits.in_memory} bytes")
                return await self._spill(_following(bytes(held), pieces), response, scratch)
        return bytes(held)

    async def _spill(self, pieces: AsyncIterator[bytes], response: aiohttp.ClientResponse, scratch: Path) -> LargeBody:
        """Write the body to a file, piece by piece; the file is gone again if that does not end well."""
        digest, size = hashlib.sha256(), 0
        with storage_errors(scratch):
            descriptor, name = await in_thread(_new_file, scratch)
        try:
            with storage_errors(Path(name)), os.fdopen(descriptor, "wb") as file:
                async for piece in regroup(pieces):
                    size += len(piece)
                    if size > self._limits.in_file:
                        raise TooLarge(f"the body is larger than {self._limits.in_file} bytes")
                    await in_thread(_write, file, digest, piece)
        except BaseException:
            await in_thread(Path(name).unlink, missing_ok=True)
            raise
        content_type = response.headers.get("Content-Type", "")
        return LargeBody(path=name, bytes=size, sha256=digest.hexdigest(), content_type=content_type)


def _new_file(scratch: Path) -> tuple[int, str]:
    scratch.mkdir(parents=True, exist_ok=True)
    return tempfile.mkstemp(dir=scratch, prefix="http-", suffix=".body")


def _write(file: BinaryIO, digest: hashlib._Hash, piece: bytes) -> None:
    digest.update(piece)
    file.write(piece)


async def _following(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    """By lower-case name; a header that came several times is one, as HTTP allows."""
    given = response.headers
    found = {name.lower(): value for name, value in given.items()}
    if len(found) == len(given):
        return found
    found.clear()
    for name, value in given.items():
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _becomes_get(status: int, method: str) -> bool:
    """What browsers do: 303 always, 301 and 302 for a POST; 307 and 308 never."""
    return method != "HEAD" if status == 303 else method == "POST" and status in (301, 302)


def _target(response: aiohttp.ClientResponse, url: URL) -> URL | None:
    location = response.headers.get("Location")
    if response.status not in _REDIRECTS or not location:
        return None
    try:
        target = url.join(URL(location))
        return target.with_fragment(None) if target.scheme in ("http", "https") and target.host else None
    except ValueError:
        return None
