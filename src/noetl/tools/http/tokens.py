"""The way to a token endpoint: the http tool's client, with the limits of a small question and a small answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.tools.http.limits import Limits
from noetl.tools.http.request import Request as Sent
from noetl.tools.secrets.oauth import Answer, Request

if TYPE_CHECKING:
    from noetl.tools.http.client import Client

__all__ = ["TokenClient"]

_SECONDS = 30.0
_MOST_BYTES = 1 << 20


class TokenClient:
    """Sends requests of the keychain. Redirects are not followed: they would take a client's secret elsewhere."""

    def __init__(self, *, allow_link_local: bool = False, seconds: float = _SECONDS) -> None:
        self._allow_link_local = allow_link_local
        self._seconds = seconds
        self._clients: dict[asyncio.AbstractEventLoop, Client] = {}

    async def __call__(self, request: Request) -> Answer:
        """The answer. Raises when there is none in time, or one that is too large for a token."""
        sent = Sent(
            method=request.method, url=request.url, public="", shown="", headers=dict(request.headers),
            private=frozenset(), body=request.body, timeout=self._seconds, verify=True, follow=False,
        )  # fmt: skip
        async with asyncio.timeout(self._seconds):
            answer = await self._client().send(sent, Path())
        assert isinstance(answer.body, bytes)  # a larger one is refused before it is written
        return Answer(status=answer.status, body=answer.body)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    def _client(self) -> Client:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            from noetl.tools.http.client import Client

            limits = Limits(connections=8, per_host=4, in_memory=_MOST_BYTES, in_file=0)
            self._clients[loop] = Client(limits, allow_link_local=self._allow_link_local)
        return self._clients[loop]
