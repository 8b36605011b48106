"""A tenant with something of everything, and strangers who know all of its ids, names, addresses and digests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.routing import Route

from noetl.adapters.memory.access import RoleAccess
from noetl.archive.jsonl import line_of
from noetl.kernel.event import Draft
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream
from noetl.observe import metrics
from noetl.observe.prometheus import PrometheusRecorder
from noetl.ports.access import Caller
from noetl.ports.ledger import Stream
from noetl.runtime.custody import custody_of
from noetl.runtime.home import Home
from noetl.runtime.logs import ExecutionLogs
from noetl.runtime.notices import Notice
from noetl.runtime.service import Services, Workplace, open_services
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.server.app import build_app
from noetl.server.auth import TokenHolders
from noetl.settings import Settings
from tests.unit.runtime.histories import History, home_at

__all__ = ["MARK", "OTHER", "OWNER", "Estate", "Operation", "estate_in", "operations", "twin_of"]

MARK = "plum-tree-77"
"""Stands in everything that the owner has, and in nothing else."""
OWNER, OTHER = ("acme", "retail"), ("globex", "retail")
_PLAYBOOK = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "own", "path": f"own/{MARK}"},
    "keychain": [{"name": f"key-{MARK}", "kind": "static", "map": {"token": "none"}}],
    "workload": {"said": MARK},
    "workflow": [
        {"step": "start", "tool": {"kind": "noop"}, "set": {f"ctx.var-{MARK}": f"kept-{MARK}"}},
    ],
}


_TWIN: dict[str, dict[str, Any]] = {
    "playbook.initialized": {"path": "twin", "workload": {}},
    "playbook.cancelled": {"result": {"status": "cancelled"}},
}


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class Estate:
    """The application, what the owner has in it, and callers."""

    app: Any
    services: Services
    settings: Settings
    known: dict[str, str] = field(default_factory=dict)
    """Everything that a stranger could have heard of."""
    history: list[Any] = field(default_factory=list)
    """The events of the owner's execution, as they are exported."""

    @property
    def embedded(self) -> Embedded:
        return self.services.embedded

    async def token(self, owner: tuple[str, str], *roles: str, name: str = "ada") -> str:
        caller = Caller(principal="user:x", tenant_id=owner[0], organization_id=owner[1], roles=frozenset({"admin"}))
        return (await custody_of(self.embedded, self.settings).create_token(caller, name, roles, seconds=3600)).token

    @contextlib.asynccontextmanager
    async def caller(self, token: str) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers, timeout=30
        ) as client:
            yield client

    async def belongings(self, owner: tuple[str, str]) -> Any:
        """What a tenant has, to be compared with what it has later."""
        embedded, tenant_id = self.embedded, owner[0]
        heads = [head async for head in _heads(embedded) if head.tenant_id == tenant_id]
        entries = await embedded.catalog.list(tenant_id, limit=1000)
        credentials = await embedded.credentials.list(tenant_id, limit=1000)
        tokens = await embedded.tokens.list(tenant_id, limit=1000)
        held = [(one.token_id, one.revoked_at) for one in tokens.tokens]
        return heads, list(entries.entries), list(credentials.credentials), held


async def _heads(embedded: Embedded) -> AsyncIterator[Any]:
    after: Stream | None = None
    while heads := await embedded.ledger.heads(after=after, limit=100):
        for head in heads:
            yield head
        after = Stream(heads[-1].tenant_id, heads[-1].stream_id)


def operations(app: Any) -> Iterator[Operation]:
    """Every method of every route that the application has, described or not."""
    described = [(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods]
    plain = [(method, one.path) for one in app.routes if isinstance(one, Route) for method in one.methods or ()]
    for method, path in sorted({*described, *plain}, key=lambda one: (one[0] == "DELETE", one)):
        if method not in ("HEAD", "OPTIONS"):
            yield Operation(method, path)


@contextlib.asynccontextmanager
async def estate_in(
    place: Path, settings: Settings | None = None, *, lease: float | None = None
) -> AsyncIterator[Estate]:
    """An installation in which the owner has one of everything; with `lease` its commands are for workers."""
    settings = settings or Settings()
    recorder = PrometheusRecorder()
    metrics.install(recorder)
    try:
        async with open_embedded(Home(place / "home"), settings, create=True) as embedded:
            workplace = Workplace(home=place / "home", directory=place, slots=2, lease_seconds=lease)
            async with open_services(embedded, settings, workplace) as services:
                admit = TokenHolders(embedded.tokens, embedded.clock)
                app = build_app(services, settings, admit=admit, access=RoleAccess(), recorder=recorder)
                estate = Estate(app, services, settings)
                async with estate.caller(await estate.token(OWNER, "admin", name=f"own-{MARK}")) as owner:
                    estate.known = await _furnished(estate, owner, place / "home")
                yield estate
    finally:
        metrics.uninstall()


async def _furnished(estate: Estate, owner: httpx.AsyncClient, home: Path) -> dict[str, str]:
    entry = await _posted(owner, "/api/catalog/register", {"content": json.dumps(_PLAYBOOK)})
    credential = {"name": f"crm-{MARK}", "type": "bearer", "data": {"token": MARK}, "description": MARK}
    await _posted(owner, "/api/credentials", credential)
    await _posted(owner, f"/api/keychain/{entry['catalog_id']}/key-{MARK}", {"data": {"token": MARK}})
    started = await _posted(owner, "/api/execute", {"path": entry["path"], "idempotency_key": f"once-{MARK}"})
    execution_id = int(started["execution_id"])
    await owner.get(f"/api/executions/{execution_id}/stream")  # up to its end
    logs = ExecutionLogs(home, estate.embedded.clock, print)
    logs.hear(
        Notice(
            tenant_id=OWNER[0], execution_id=execution_id, command_id=1, step="start", task="t", what="log", text=MARK
        )
    )
    logs.close()
    root = Stream(OWNER[0], execution_stream(execution_id))
    events = [item.event for item in await estate.embedded.ledger.read_root(root)]
    estate.history = [json.loads(line_of(event)) for event in events]
    kept = estate.embedded.payloads.of_tenant(OWNER[0])
    ref = await kept.store(MARK.encode() * 100, media_type="text/plain")
    command = next((event.event_id for event in events if event.event_type == "command.issued"), events[-1].event_id)
    return {
        "execution_id": str(execution_id), "catalog_id": entry["catalog_id"], "path": entry["path"],
        "tenant_id": OWNER[0],
        "name": f"crm-{MARK}", "key": f"key-{MARK}", "variable": f"var-{MARK}", "step": "start", "sha256": ref.sha256,
        "payload": ref.uri, "result": f"noetl://{OWNER[0]}/default/results/{execution_id}/start~1/0/0/1@1",
        "older": f"noetl://execution/{execution_id}/result/start/x", "command_id": str(command),
        "event_id": str(events[-1].event_id), "idempotency_key": f"once-{MARK}", "stage_id": str(events[0].event_id),
        "frame_id": str(events[0].event_id), "request_id": await _delivered(owner, home),
    }  # fmt: skip


async def _delivered(owner: httpx.AsyncClient, home: Path) -> str:
    """A history that ran elsewhere; the name of the request that brought it."""
    async with home_at(home.parent / "elsewhere", OWNER[0]) as elsewhere:
        history = History(elsewhere)
        await history.tell("playbook.initialized", payload={"path": f"batch/{MARK}"})
        events = [item.event for item in await elsewhere.ledger.read_root(history.root)]
    taken = await owner.post("/api/events/batch", json={"events": [json.loads(line_of(event)) for event in events]})
    assert taken.status_code == 202, taken.text
    return str(taken.json()["request_id"])


async def twin_of(estate: Estate, tenant_id: str) -> None:
    """The stranger has an execution with the very id of the owner's."""
    execution_id = int(estate.known["execution_id"])
    drafts = [
        Draft(
            event_type=event_type,
            tenant_id=tenant_id,
            organization_id="retail",
            project_id="default",
            principal="user:bo",
            producer=f"noetl://tenant/{tenant_id}",
            execution_id=execution_id,
            payload=payload,
        )
        for event_type, payload in _TWIN.items()
    ]
    stream = Stream(tenant_id, execution_stream(execution_id))
    await estate.embedded.ledger.append([Batch(stream=stream, drafts=drafts)])


async def _posted(client: httpx.AsyncClient, path: str, body: Any) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found
