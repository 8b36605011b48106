"""Routes of archives: executions as bundles in an object store."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from noetl.kernel.ids import MAX_ID
from noetl.kernel.streams import category_of, execution_stream
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time, parse_time
from noetl.ports.archives import ArchiveEntry
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.runtime.archiving import Archiver, open_archiver
from noetl.runtime.home import Home
from noetl.runtime.service import Services
from noetl.server.context import Caller, require, service_for, services_of
from noetl.server.wire import answer, described

__all__ = ["Archiving", "router"]

router = APIRouter(prefix="/api", tags=["archives"])

_EXECUTE, _ADMIN = Depends(require("execute")), Depends(require("admin"))


class ArchiveView(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle: the history of an execution and of all that it has called."""

    execution_id: str
    uri: str
    events: int
    first_position: int
    last_position: int
    stream_heads: str
    manifest_sha256: str
    bytes: int
    archived_at: str


class ArchiveMade(ArchiveView, frozen=True, kw_only=True):
    """The same, and whether it was archived now."""

    created: bool


class ArchivePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of them, and where the next ones begin."""

    archives: list[ArchiveView]
    next_cursor: str | None


class Archiving:
    """The archiver of a server, opened when somebody first asks."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._opening = asyncio.Lock()
        self._archiver: Archiver | None = None

    async def archiver(self) -> Archiver:
        """It. Raises Unavailable while its store is away."""
        async with self._opening:
            if self._archiver is None:
                services = self._services
                home = services.embedded.home or Home(services.place.home)
                self._archiver = await open_archiver(services.embedded, home, services.settings, services.project)
            return self._archiver


@router.post("/executions/{execution_id}/archive", **described(ArchiveMade, 404, 409))
async def archive(
    execution_id: Annotated[int, Path(ge=0, le=MAX_ID)],
    request: Request,
    asking: Caller = _EXECUTE,
    payloads: Annotated[bool | None, Query(description="Whether results are copied, too.")] = None,
) -> Response:
    """Archive an execution that has ended, with all that it has called; again, nothing happens."""
    service = await service_for(request, asking)
    await service.reading.status(execution_id)  # which is not there for those who may not see it
    archiving: Archiving = request.app.state.archiving
    archiver = await archiving.archiver()
    made = await archiver.archive(Stream(asking.tenant_id, execution_stream(execution_id)), payloads=payloads)
    return answer(ArchiveMade(**_fields(made.entry), created=made.created))


@router.get("/archives", **described(ArchivePage))
async def archives(
    request: Request,
    asking: Caller = _ADMIN,
    cursor: Annotated[str | None, Query(max_length=4096)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """What is archived of the caller's tenant, in the order of the executions' ids."""
    after = None
    if cursor is not None:
        after = Stream(asking.tenant_id, read_cursor(cursor, 1)[0])
        category_of(after.stream_id)  # which refuses what no page has given
    found = await services_of(request).embedded.archives.page(asking.tenant_id, after=after, limit=limit + 1)
    more = write_cursor(found[limit - 1].root.stream_id) if len(found) > limit else None
    views = [ArchiveView(**_fields(entry)) for entry in found[:limit]]
    return answer(ArchivePage(archives=views, next_cursor=more))


def _fields(entry: ArchiveEntry) -> dict[str, Any]:
    return {
        "execution_id": entry.root.stream_id.rpartition("/")[2],
        "uri": entry.uri,
        "events": entry.events,
        "first_position": entry.first_position,
        "last_position": entry.last_position,
        "stream_heads": entry.stream_heads,
        "manifest_sha256": entry.manifest_sha256,
        "bytes": entry.bytes,
        "archived_at": format_time(parse_time(entry.archived_at.isoformat())),
    }
