"""Executions put into a ledger event by event, with payloads of every kind of reference: to be kept and delivered."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from noetl.kernel.event import Draft, Json, PayloadRef
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream, telemetry_stream
from noetl.ports.ledger import Stream
from noetl.runtime.driver import Origin
from noetl.runtime.home import Home
from noetl.runtime.sealing import measure
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings, Tenant

EXECUTION = 286_000_000_000_000_001
DOCUMENT = b"apiVersion: noetl.io/v2\nkind: Playbook\n"


def settings_of(tenant: str = "acme", organization: str = "retail") -> Settings:
    return Settings(tenant=Tenant(id=tenant, organization=organization, project="sales"))


def origin_of(tenant: str = "acme", organization: str = "retail") -> Origin:
    producer = f"noetl://tenant/{tenant}"
    return Origin(
        tenant_id=tenant, organization_id=organization, project_id="sales", principal="user:bo", producer=producer
    )


@contextlib.asynccontextmanager
async def home_at(path: Path, tenant: str = "acme") -> AsyncIterator[Embedded]:
    """An installation of its own."""
    async with open_embedded(Home(path), settings_of(tenant), create=True) as embedded:
        yield embedded


class History:
    """Writes one execution, some events at a time."""

    def __init__(self, embedded: Embedded, execution_id: int = EXECUTION, *, parent: int | None = None) -> None:
        self._embedded = embedded
        self._parent = parent
        self.execution_id = execution_id
        self.tenant = embedded.settings.tenant
        self.root = Stream(self.tenant.id, execution_stream(execution_id))
        self.telemetry = Stream(self.tenant.id, telemetry_stream(execution_id))

    async def tell(self, event_type: str, stream: Stream | None = None, **fields: Any) -> int:
        """Append one event and return its id."""
        batch = Batch(stream=stream or self.root, drafts=[self._draft(event_type, **fields)])
        return (await self._embedded.ledger.append([batch]))[0].event_id

    async def tell_many(self, event_type: str, payloads: list[Json]) -> None:
        """Append many events at once."""
        drafts = [self._draft(event_type, payload=payload) for payload in payloads]
        await self._embedded.ledger.append([Batch(stream=self.root, drafts=drafts)])

    def _draft(self, event_type: str, **fields: Any) -> Draft:
        return Draft(
            event_type=event_type,
            tenant_id=self.tenant.id,
            organization_id=self.tenant.organization,
            project_id=self.tenant.project,
            principal="user:ada",
            producer=f"noetl://tenant/{self.tenant.id}",
            execution_id=self.execution_id,
            parent_execution_id=self._parent,
            **fields,
        )

    async def store(self, data: bytes) -> PayloadRef:
        return await self._embedded.payloads.store(data, media_type="application/json")

    async def begin(self, **payload: Any) -> None:
        document = await self.store(DOCUMENT)
        said = {"sha256": document.sha256, "bytes": document.bytes, "path": "sales/load", "origin": "file"}
        await self.tell("playbook.initialized", payload={"path": "sales/load", "document": said, **payload})
        await self.tell("workflow.initialized", node_name="load")

    async def work(self, result: bytes = b'{"result":{"context":{"rows":[1]}}}') -> None:
        """A command whose result is outside of its event."""
        command = await self.tell("command.issued", node_name="load", payload={"kind": "python"})
        ref = await self.store(result)
        meta = {"sha256": ref.sha256, "bytes": ref.bytes, "content_type": ref.media_type}
        reference = {"kind": "result_ref", "uri": ref.uri, "ref": ref.uri, "meta": meta}
        await self.tell(
            "call.done",
            node_name="load",
            command_id=command,
            payload={"result": {"status": "ok", "reference": reference, "context": {}}},
            payload_ref=ref,
        )
        await self.tell("command.completed", command_id=command, node_name="load")

    async def assign(self, value: bytes) -> None:
        """A value of `ctx` that is too large for its event."""
        ref: Json = {"$ref": msgspec.to_builtins(await self.store(value))}
        await self.tell("step.exit", node_name="load", payload={"set": {"ctx.big": ref}})

    async def signal(self, times: int = 3) -> None:
        """Events of a sparse stream, and the seal over them."""
        for number in range(times):
            await self.tell("model.checkpointed", stream=self.telemetry, payload={"loss": number / 7})
        seal = await measure(self._embedded.ledger, self.telemetry)
        await self.tell("stream.sealed", payload={"seal": msgspec.to_builtins(seal)})

    async def end(self, status: str = "completed") -> None:
        await self.tell(f"playbook.{status}", node_name="playbook", status=status.upper(), payload={"result": None})


async def whole(embedded: Embedded, execution_id: int = EXECUTION, *, parent: int | None = None) -> History:
    """An execution with every kind of event and reference that there is."""
    history = History(embedded, execution_id, parent=parent)
    await history.begin()
    await history.work()
    await history.assign(b'"' + b"x" * 5000 + b'"')
    await history.signal()
    await history.end()
    return history
