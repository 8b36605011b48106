"""A server without a socket: the application over a home of its own, and people who hold tokens."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from noetl.adapters.memory.access import RoleAccess
from noetl.observe import metrics
from noetl.observe.prometheus import PrometheusRecorder
from noetl.ports.access import Caller
from noetl.runtime.callers import local_caller
from noetl.runtime.custody import custody_of
from noetl.runtime.home import Home
from noetl.runtime.service import Services, Workplace, open_services
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.server.app import build_app
from noetl.server.auth import LoopbackOnly, TokenHolders
from noetl.settings import Settings

SECRET = "horse-staple-battery-9"
HELLO = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: guide/hello}
workflow:
  - step: start
    tool: {kind: noop}
"""


class Hall:
    """The application, and a client for each caller."""

    def __init__(self, services: Services, settings: Settings, recorder: PrometheusRecorder, *, tokens: bool) -> None:
        self.embedded: Embedded = services.embedded
        self.settings = settings
        admit = (
            TokenHolders(self.embedded.tokens, self.embedded.clock)
            if tokens
            else LoopbackOnly(local_caller(settings), ["127.0.0.1"])
        )
        self.app = build_app(services, settings, admit=admit, access=RoleAccess(), recorder=recorder)
        self._clients = contextlib.AsyncExitStack()

    async def client(self, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
        """Somebody who sends these headers with everything."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        made = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)
        return await self._clients.enter_async_context(made)

    async def token(
        self, *roles: str, tenant: str = "acme", name: str = "ci", seconds: float | None = 3600
    ) -> tuple[str, str]:
        """A new token and its id."""
        caller = Caller(principal="user:ada", tenant_id=tenant, organization_id="retail", roles=frozenset({"admin"}))
        custody = custody_of(self.embedded, self.settings)
        grant = await custody.create_token(caller, name, roles or ("reader",), seconds=seconds)
        return grant.token, grant.info.token_id

    async def holder(self, *roles: str, tenant: str = "acme", name: str | None = None) -> httpx.AsyncClient:
        """Somebody with a token of these roles."""
        token, _ = await self.token(*roles, tenant=tenant, name=name or f"{tenant}-{'-'.join(roles)}")
        return await self.client({"Authorization": f"Bearer {token}"})

    async def close(self) -> None:
        await self._clients.aclose()


@contextlib.asynccontextmanager
async def open_hall(place: Path, *, tokens: bool = True) -> AsyncIterator[Hall]:
    settings = Settings()
    recorder = PrometheusRecorder()
    metrics.install(recorder)
    try:
        async with open_embedded(Home(place / "home"), settings, create=True) as embedded:
            workplace = Workplace(home=place / "home", directory=place, slots=2)
            async with open_services(embedded, settings, workplace) as services:
                hall = Hall(services, settings, recorder, tokens=tokens)
                yield hall
                await hall.close()
    finally:
        metrics.uninstall()


async def register(client: httpx.AsyncClient, content: str = HELLO, **more: Any) -> dict[str, Any]:
    answer = await client.post("/api/catalog/register", json={"content": content, **more})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def paths(entries: Sequence[dict[str, Any]]) -> list[str]:
    return [entry["path"] for entry in entries]
