"""Routes of batches: executions that ran elsewhere, delivered in one request.

application/x-tar                    what `noetl push` sends: buffers with their payloads, streamed to the disk
application/vnd.apache.arrow.file    the `events.feather` of one buffer; its payloads must be here already
application/vnd.apache.arrow.stream  the same columns as a stream
application/json                     `{"events": [envelope, ...]}`; the same
"""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, HTTPException, Path, Request, Response

from noetl.archive.parcel import Unpacker
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel.ids import MAX_ID
from noetl.payloads.blocking import in_thread, regroup, storage_errors
from noetl.runtime.delivery import Owner, Part, buffer_part
from noetl.runtime.driver import Origin
from noetl.runtime.incoming import ARROW_FILE, ARROW_STREAM, JSON, PARCEL, NotJson, parts_of
from noetl.runtime.ingest import MOST_BYTES, BatchProgress, BatchTaken, Wanted
from noetl.runtime.origin import origin_of
from noetl.server.context import Caller, require, services_of
from noetl.server.problems import Malformed
from noetl.server.streams import streaming
from noetl.server.wire import answer, described

__all__ = ["router"]

router = APIRouter(prefix="/api/events/batch", tags=["batch"])

_KINDS = (PARCEL, ARROW_FILE, ARROW_STREAM, JSON)
_LATER = "respond-async"
_MOST_WAITING_BYTES = 1 << 30
_MOST_JSON = 32 << 20
_READ = Depends(require("read"))
_EXECUTE = Depends(require("execute"))

ExecutionId = Annotated[int | None, Header(alias="X-NoETL-Execution-Id", ge=1, le=MAX_ID)]
EventCount = Annotated[int | None, Header(alias="X-NoETL-Event-Count", ge=1, le=MAX_ID)]
AsTenant = Annotated[str | None, Header(alias="X-NoETL-As", min_length=1, max_length=200)]
Prefer = Annotated[str | None, Header(description="`respond-async`: do not wait until it is written.")]
RequestId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


_BINARY = {"schema": {"type": "string", "format": "binary"}}
_EVENTS = {
    "type": "object",
    "required": ["events"],
    "additionalProperties": False,
    "properties": {"events": {"type": "array", "minItems": 1, "items": {"type": "object"}}},
}
_BODY = {"required": True, "content": {**dict.fromkeys(_KINDS[:3], _BINARY), JSON: {"schema": _EVENTS}}}


def _described_delivery() -> dict[str, Any]:
    found = described(BatchTaken, 400, 409, 413, 415, 429)
    taken = found["responses"][200]
    found["responses"][202] = taken
    found["responses"][507] = {**found["responses"][503], "description": "There is no room for it."}
    found["responses"][200] = {**taken, "description": "It was here already; nothing was written."}
    return {**found, "status_code": 202, "openapi_extra": {"requestBody": _BODY}}


def _described_stream() -> dict[str, Any]:
    found = described(None, 404)
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    found["responses"][200] = {"description": "Server-sent events.", "content": stream}
    return found


@router.post("", **_described_delivery())
async def deliver(
    request: Request,
    execution_id: ExecutionId = None,
    event_count: EventCount = None,
    as_tenant: AsTenant = None,
    prefer: Prefer = None,
    asking: Caller = _EXECUTE,
) -> Response:
    """Take the history of an execution, and of those it called: all of it, once it is proven, or nothing.

    The answer comes when everything is written, or, with `Prefer: respond-async`, as soon as it is proven and kept;
    it is written then by this server or the next one. Sending the same again is harmless; sending a longer history of
    the same execution adds the rest.
    """
    services = services_of(request)
    wanted = Wanted(execution_id=execution_id, events=event_count, as_tenant=as_tenant)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _KINDS:
        raise HTTPException(415, f"'{kind}' is not taken here; send {', '.join(_KINDS)}")
    origin, later = _origin_of(request, asking), _prefers_later(prefer)
    try:
        async with services.ingest.waiting_room() as room:
            if later:
                body = await _saved(request, kind, room, _MOST_WAITING_BYTES)
                taken = await services.incoming.accept(kind, body, room, origin, wanted)
            else:
                parts = await _received(request, kind, room)
                taken = await services.ingest.take(parts, origin, wanted)
    except NotJson as error:
        raise Malformed(error.message) from None
    except (IntegrityMismatch, NotFound) as error:  # what came is at fault, not what is kept here
        raise InvalidInput(error.message, hint=error.hint) from None
    said = answer(taken, 200 if taken.status == "already there" else 202)
    said.headers["Location"] = f"/api/events/batch/{taken.request_id}/status"
    if later:
        said.headers["Preference-Applied"] = _LATER
    return said


@router.get("/{request_id}/status", **described(BatchProgress, 404))
async def status(request_id: RequestId, request: Request, asking: Caller = _READ) -> Response:
    """How far a request has come."""
    return answer(await services_of(request).ingest.progress(_owner(asking), request_id))


@router.get("/{request_id}/stream", **_described_stream())
async def stream(request_id: RequestId, request: Request, asking: Caller = _READ) -> Response:
    """Every state of a request as it is reached, as server-sent events; ends with the request."""
    ingest = services_of(request).ingest
    await ingest.progress(_owner(asking), request_id)  # one that is not there is said so before the stream begins
    return streaming(request, ingest.follow(_owner(asking), request_id), _message)


def _message(state: BatchProgress) -> bytes:
    return b"event: batch.%b\ndata: %b\n\n" % (state.status.encode(), msgspec.json.encode(state))


async def _received(request: Request, kind: str, room: pathlib.Path) -> list[Part]:
    if kind == PARCEL:  # unpacked on the way: it may be too large to lie here twice
        folders = await _unpacked(request, room)
        return await in_thread(lambda: [buffer_part(folder, whole=False) for folder in folders])
    return await in_thread(parts_of, kind, await _saved(request, kind, room), room)


async def _unpacked(request: Request, room: pathlib.Path) -> list[pathlib.Path]:
    unpacker = Unpacker(room)
    try:
        async for piece in regroup(_bounded(request, MOST_BYTES)):
            await in_thread(unpacker.feed, piece)
        return unpacker.finish()
    finally:
        unpacker.close()


async def _saved(request: Request, kind: str, room: pathlib.Path, most: int = MOST_BYTES) -> pathlib.Path:
    file = room / "body"
    with storage_errors(file), file.open("xb") as sink:
        async for piece in regroup(_bounded(request, _MOST_JSON if kind == JSON else most)):
            await in_thread(sink.write, piece)
    return file


async def _bounded(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The body piece by piece, refused as soon as it is known to be too large."""
    announced = request.headers.get("content-length", "")
    taken = int(announced) if announced.isdecimal() else 0
    if taken <= limit:
        taken = 0
        async for piece in request.stream():
            taken += len(piece)
            if taken > limit:
                break
            yield piece
    if taken > limit:
        raise HTTPException(413, f"the body is larger than {limit} bytes")


def _prefers_later(prefer: str | None) -> bool:
    """Whether the caller does not want to wait (RFC 7240)."""
    return _LATER in {one.partition(";")[0].strip().lower() for one in (prefer or "").split(",")}


def _owner(asking: Caller) -> Owner:
    return Owner(asking.tenant_id, asking.organization_id)


def _origin_of(request: Request, asking: Caller) -> Origin:
    origin = origin_of(services_of(request).settings, asking.tenant_id, asking.organization_id)
    return msgspec.structs.replace(origin, principal=asking.principal)
