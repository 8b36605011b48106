"""The http kind: fields in, answer out, and every way in which a network can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from noetl.errors import StorageFull, Unavailable
from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering, failed
from noetl.tools.http.addresses import BlockedAddress
from noetl.tools.http.answer import outcome_of
from noetl.tools.http.limits import Limits
from noetl.tools.http.request import request_of
from noetl.tools.values import BadField

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

    from noetl.tools.http.client import Client

__all__ = ["HttpTool"]

_NO_ANSWER: Json = {"http": {"status": None, "headers": {}}}


def _now() -> datetime:
    return datetime.now(UTC)


class HttpTool:
    """Sends one request. Connections are shared by all calls of an event loop and stay open between them."""

    kind = "http"
    rendering: Mapping[str, Rendering] = {"url": "strict", "endpoint": "strict"}
    required: tuple[tuple[str, ...], ...] = (("url", "endpoint"),)
    keeps_time = True

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        allow_link_local: bool = False,
        resolver: Callable[[], AbstractResolver] | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._limits = limits or Limits()
        self._allow_link_local = allow_link_local
        self._resolver = resolver
        self._now = now
        self._clients: dict[asyncio.AbstractEventLoop, Client] = {}

    def side_effecting(self, fields: Json) -> bool:
        """Always: what a server does with a GET is its own business."""
        return True

    async def run(self, call: Call) -> Outcome:
        """Send the request and wait for the whole answer."""
        try:
            request = request_of(call)
        except BadField as error:
            return msgspec.structs.replace(error.outcome, extra=_NO_ANSWER)
        client = self._clients.get(asyncio.get_running_loop()) or await self._new_client()
        try:
            async with asyncio.timeout(request.timeout):
                answer = await client.send(request, call.scratch)
        except TimeoutError:
            message = f"{request.sent} took longer than {request.timeout:g} s"
            return failed("timeout", "TIMEOUT", message, extra=_NO_ANSWER)
        except Exception as error:
            outcome = _explained(error, request.sent)
            if outcome is None:
                raise
            return outcome
        return outcome_of(answer, request, self._now)

    async def close(self) -> None:
        """Close the connections of every loop."""
        here = asyncio.get_running_loop()
        for loop, client in list(self._clients.items()):
            if loop is not here and loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(client.close(), loop))
            else:
                await client.close()
        self._clients.clear()

    async def _new_client(self) -> Client:
        from noetl.tools.http.client import Client

        for ended in [other for other in self._clients if other.is_closed()]:
            await self._clients.pop(ended).close()
        client = self._clients[asyncio.get_running_loop()] = Client(
            self._limits,
            allow_link_local=self._allow_link_local,
            resolver=self._resolver() if self._resolver else None,
        )
        return client


def _explained(error: Exception, sent: str) -> Outcome | None:
    """The outcome of a request that got no answer; None for a fault of our own."""
    import ssl

    import aiohttp

    from noetl.tools.http.client import TooLarge, TooManyRedirects

    reason: Exception = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error
    said: object = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
    # The first that fits is taken.
    known: tuple[tuple[type[Exception], str, str], ...] = (
        (BlockedAddress, "client_error", "ADDRESS_BLOCKED"),
        (TooManyRedirects, "client_error", "TOO_MANY_REDIRECTS"),
        (TooLarge, "storage_quota", "BODY_TOO_LARGE"),
        (StorageFull, "storage_quota", "STORAGE_FULL"),
        (Unavailable, "storage_access", "BODY_NOT_STORED"),
        (ssl.SSLError, "connection", "TLS_FAILED"),
        (ssl.CertificateError, "connection", "TLS_FAILED"),
        (aiohttp.InvalidURL, "schema", "URL_INVALID"),
        (aiohttp.ClientError, "connection", "CONNECTION_FAILED"),
        (OSError, "connection", "CONNECTION_FAILED"),
    )
    for group, kind, code in known:
        if isinstance(reason, group):
            return failed(kind, code, f"{sent}: {said}", extra=_NO_ANSWER)
    return None
