"""The API inside this process: a real home, and tools that are functions of the test."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx

from noetl.runtime.home import Home
from noetl.runtime.service import Services, Workplace, open_services
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.server.app import build_app
from noetl.settings import Settings
from noetl.tools.base import Call
from noetl.tools.registry import Registry
from tests.unit.runtime.workshop import FunctionTool, as_text, book, step

__all__ = ["Api", "book", "open_api", "step"]

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


class Api:
    """A client, and what stands behind the server. `body` is what a python task does."""

    def __init__(self, client: httpx.AsyncClient, embedded: Embedded, services: Services, app: Any) -> None:
        self.client = client
        self.embedded = embedded
        self.services = services
        self.app = app
        self.body: Callable[[Call], Any] = lambda call: call.input or {"step": call.step}

    async def get(self, path: str, status: int = 200, /, **params: Any) -> Any:
        return _checked(await self.client.get(f"/api{path}", params=params), status)

    async def post(self, path: str, content: Any = None, status: int = 200) -> Any:
        sent = {} if content is None else {"json": content}
        return _checked(await self.client.post(f"/api{path}", **sent), status)

    async def register(self, *documents: Any) -> None:
        for document in documents:
            await self.post("/catalog/register", {"content": as_text(document)})

    async def start(self, document: Any, **asked: Any) -> str:
        """Register a document and start it."""
        await self.register(document)
        path = json.loads(as_text(document))["metadata"]["path"]
        started = await self.post("/execute", {"path": path, **asked})
        return str(started["execution_id"])

    async def run(self, document: Any, **asked: Any) -> str:
        """The same, and wait for its end."""
        execution_id = await self.start(document, **asked)
        await self.ended(execution_id)
        return execution_id

    async def ended(self, execution_id: str) -> list[dict[str, Any]]:
        """The events up to the terminal one, as they are streamed."""
        return [message for _, message in await self.stream(f"/executions/{execution_id}/stream")]

    async def stream(self, path: str, **headers: str) -> list[tuple[int, dict[str, Any]]]:
        """The messages of a stream to its end."""
        async with self.client.stream("GET", f"/api{path}", headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            return [message async for message in messages(response)]


async def messages(response: httpx.Response) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    number = 0
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            number = int(line.removeprefix("id: "))
        elif line.startswith("data: "):
            yield number, json.loads(line.removeprefix("data: "))


@contextlib.asynccontextmanager
async def open_api(
    folder: Path, settings: Settings | None = None, *, lease: float | None = None, **options: Any
) -> AsyncIterator[Api]:
    """With `lease` its commands are for workers of other processes, and stay with one for so many seconds."""
    settings = settings or Settings()
    made: list[Api] = []

    def registry() -> Registry:
        return Registry({"python": FunctionTool("python", run)})

    def run(call: Call) -> Any:
        return made[0].body(call)  # a test may change it at any time

    home = Home(folder / "home")
    place = Workplace(home=home.path, directory=folder, slots=4, registry=registry, lease_seconds=lease)
    async with (
        open_embedded(home, settings, create=True) as embedded,
        open_services(embedded, settings, place) as services,
    ):
        app = build_app(services, settings, **options)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
            made.append(Api(client, embedded, services, app))
            yield made[0]


def _checked(response: httpx.Response, status: int) -> Any:
    assert response.status_code == status, (response.status_code, response.text)
    if status >= 400 and response.headers["content-type"] == "application/problem+json":
        problem = response.json()
        assert problem["status"] == status
        assert problem["detail"]
        assert problem["title"]
    return response.json()
