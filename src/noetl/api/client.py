"""A NoETL server over HTTP: one request, one answer or one error of ours.

Whatever can be sent twice without harm is sent again when the network or the server has a bad moment. Starting an
execution can: it carries an idempotency key.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec

from noetl import __version__
from noetl.api.refusals import error_of
from noetl.api.sse import Message, Reader
from noetl.errors import InvalidInput, NoetlError, Unavailable

__all__ = ["Client", "address_of"]

_TRIES = 4
_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_MOST_ANSWER = 256 << 20
_SILENCE = 60.0  # seconds without a byte after which a stream is taken for dead; servers send comments meanwhile
_LATER = frozenset({408, 425, 429, 502, 503, 504})


def address_of(url: str) -> str:
    """A server's address as it is used below. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InvalidInput(f"'{url}' is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(f"'{url}' is not the address of a server", hint="write it as http://127.0.0.1:8082")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("an address does not hold a password", hint="give a token instead")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/api')}"


class Client:
    """An open connection to a server, for as long as the `async with` lasts."""

    def __init__(self, url: str, token: str | None, seconds: float) -> None:
        self._url = url
        self._seconds = seconds
        self._headers = {"Accept": "application/json", "User-Agent": f"noetl/{__version__}"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._seconds, sock_connect=min(10.0, self._seconds))
        self._session = aiohttp.ClientSession(
            headers=self._headers, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=True
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, route: str, /, **params: Any) -> Any:
        """The answer to a question."""
        given = {name: str(value) for name, value in params.items() if value is not None}
        return await self._call("GET", route, params=given)

    async def post(
        self, path: str, body: Any, *, headers: Mapping[str, str] | None = None, repeatable: bool = False
    ) -> Any:
        """The answer to a request. Only one that is `repeatable` is sent again when it got no answer."""
        return await self._call("POST", path, body=body, headers=headers, tries=_TRIES if repeatable else 1)

    async def delete(self, route: str) -> Any:
        """The answer to a request that something be no more. Done twice, the second says that it is not there."""
        return await self._call("DELETE", route, tries=1)

    async def stream(self, path: str, last_id: str = "") -> AsyncGenerator[Message]:
        """Messages after `last_id`, until the server or the network ends the stream."""
        assert self._session is not None
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(10.0, self._seconds), sock_read=_SILENCE)
        reader = Reader(last_id)
        try:
            async with self._session.get(
                self._url + path, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status == HTTPStatus.NO_CONTENT:  # there is nothing after last_id, and never will be
                    return
                if response.status != HTTPStatus.OK:
                    raise error_of(response.status, await response.read(), self._url)
                async for piece in response.content.iter_any():
                    for message in reader.feed(piece):
                        yield message
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unavailable(error) from None

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        tries: int = _TRIES,
    ) -> Any:
        for number in range(1, tries + 1):
            pause = min(_LONGEST_PAUSE, _PAUSE * 2.0**number) * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
            try:
                status, answer, wait = await self._once(method, path, body, params or {}, headers or {})
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if number == tries:
                    raise self._unavailable(error) from None
            else:
                if status < HTTPStatus.BAD_REQUEST:
                    return self._read(status, answer)
                if status not in _LATER or number == tries:
                    raise error_of(status, answer, self._url)
                pause = min(_LONGEST_PAUSE, wait) if wait is not None else pause
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _once(
        self, method: str, path: str, body: Any, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, bytes, float | None]:
        assert self._session is not None
        data = None if body is None else msgspec.json.encode(body)
        sent = {**headers, **({} if data is None else {"Content-Type": "application/json"})}
        async with self._session.request(
            method, self._url + path, data=data, params=params, headers=sent, allow_redirects=False
        ) as response:
            answer = bytearray()
            async for piece in response.content.iter_any():
                answer += piece
                if len(answer) > _MOST_ANSWER:
                    raise NoetlError(f"{self._url}{path} answered with more than {_MOST_ANSWER >> 20} MiB")
            after = response.headers.get("Retry-After", "")
            return response.status, bytes(answer), float(after) if after.isdecimal() else None

    def _read(self, status: int, answer: bytes) -> Any:
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise InvalidInput(f"{self._url} points elsewhere ({status})", hint="give the address of the server itself")
        try:
            return msgspec.json.decode(answer)
        except msgspec.MsgspecError:
            raise InvalidInput(f"{self._url} is not a NoETL server: it does not speak JSON") from None

    def _unavailable(self, error: Exception) -> Unavailable:
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return Unavailable(
            f"{self._url} cannot be reached: {reason}",
            hint="see that the server runs (noetl server) and that the address is right",
        )
