"""An embedded installation with its real tools, for tests that run documents as users write them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from noetl.kernel.event import Envelope, Json
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.ports.credentials import Credential
from noetl.runtime.driver import Origin, Request
from noetl.runtime.embedded.runner import Finished, open_runner
from noetl.runtime.home import Home
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings
from noetl.tools.registry import Registry
from tests.unit.runtime.workshop import as_text

__all__ = ["Plant", "opened"]


class Plant:
    """Runs documents to their end."""

    def __init__(self, embedded: Embedded, place: Path) -> None:
        self.embedded = embedded
        self.place = place

    async def run(self, document: str | Json, *, registry: Registry | None = None, **request: Any) -> Finished:
        async with open_runner(
            self.embedded, Origin(), directory=self.place, scratch=self.place / "scratch", slots=4, registry=registry
        ) as runner:
            execution_id = await runner.start(Request(document=as_text(document), **request))
            await runner.resume(execution_id)
            return await runner.wait(execution_id)

    async def credential(self, name: str, kind: str, **data: Any) -> None:
        await self.embedded.credentials.put("default", Credential(name=name, type=kind, data=data))

    async def register(self, document: Json) -> None:
        await self.embedded.catalog.register("default", document["metadata"]["path"], "Playbook", as_text(document))

    async def events(self, execution_id: int) -> list[Envelope]:
        found: list[Envelope] = []
        stream = Stream("default", execution_stream(execution_id))
        while page := await self.embedded.ledger.read(stream, after_version=len(found), limit=1000):
            found += [item.event for item in page]
        return found


@contextlib.asynccontextmanager
async def opened(place: Path, settings: Mapping[str, Any] | None = None) -> AsyncIterator[Plant]:
    """An installation in a directory, with settings by section."""
    async with open_embedded(Home(place / "home"), Settings(**settings or {}), create=True) as embedded:
        yield Plant(embedded, place)
