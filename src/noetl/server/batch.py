"""Routes of batches: executions that ran elsewhere, delivered in one request.

application/x-tar                    what `noetl push` sends: buffers with their payloads, streamed to the disk
application/vnd.apache.arrow.file    the `events.feather` of one buffer; its payloads must be here already
application/json                     `{"events": [envelope, ...]}`; the same
"""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, HTTPException, Path, Request, Response

from noetl.archive.jsonl import parse_line
from noetl.archive.parcel import MEDIA_TYPE, Unpacker
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel.event import Envelope
from noetl.kernel.ids import MAX_ID
from noetl.payloads.blocking import in_thread, regroup, storage_errors
from noetl.runtime.delivery import Part, buffer_part, events_part
from noetl.runtime.driver import Origin
from noetl.runtime.ingest import MOST_BYTES, BatchProgress, BatchTaken, Ingest, Wanted
from noetl.runtime.origin import origin_of
from noetl.server.context import Caller, require, services_of
from noetl.server.problems import Malformed
from noetl.server.streams import streaming
from noetl.server.wire import answer, described

__all__ = ["router"]

router = APIRouter(prefix="/api/events/batch", tags=["batch"])

_ARROW = "application/vnd.apache.arrow.file"
_JSON = "application/json"
_MOST_JSON = 32 << 20
_READ = Depends(require("read"))
_EXECUTE = Depends(require("execute"))

ExecutionId = Annotated[int | None, Header(alias="X-NoETL-Execution-Id", ge=1, le=MAX_ID)]
EventCount = Annotated[int | None, Header(alias="X-NoETL-Event-Count", ge=1, le=MAX_ID)]
AsTenant = Annotated[str | None, Header(alias="X-NoETL-As", min_length=1, max_length=200)]
RequestId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


class _Events(msgspec.Struct, forbid_unknown_fields=True):
    events: list[msgspec.Raw]


_BINARY = {"schema": {"type": "string", "format": "binary"}}
_EVENTS = {
    "type": "object",
    "required": ["events"],
    "additionalProperties": False,
    "properties": {"events": {"type": "array", "minItems": 1, "items": {"type": "object"}}},
}
_BODY = {"required": True, "content": {MEDIA_TYPE: _BINARY, _ARROW: _BINARY, _JSON: {"schema": _EVENTS}}}


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
    asking: Caller = _EXECUTE,
) -> Response:
    """Take the history of an execution, and of those it called: all of it, once it is proven, or nothing.

    The answer comes when everything is durable. Sending the same again is harmless; sending a longer history of the
    same execution adds the rest.
    """
    ingest = _ingest_of(request)
    wanted = Wanted(execution_id=execution_id, events=event_count, as_tenant=as_tenant)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        async with ingest.waiting_room() as room:
            parts = await _received(request, kind, room)
            taken = await ingest.take(parts, _origin_of(request, asking), wanted)
    except (IntegrityMismatch, NotFound) as error:  # what came is at fault, not what is kept here
        raise InvalidInput(error.message, hint=error.hint) from None
    return answer(taken, 200 if taken.status == "already there" else 202)


@router.get("/{request_id}/status", **described(BatchProgress, 404))
async def status(request_id: RequestId, request: Request, asking: Caller = _READ) -> Response:
    """How far a request has come."""
    return answer(await _ingest_of(request).progress(asking.tenant_id, request_id))


@router.get("/{request_id}/stream", **_described_stream())
async def stream(request_id: RequestId, request: Request, asking: Caller = _READ) -> Response:
    """Every state of a request as it is reached, as server-sent events; ends with the request."""
    ingest = _ingest_of(request)
    await ingest.progress(asking.tenant_id, request_id)  # one that is not there is said so before the stream begins
    return streaming(request, ingest.follow(asking.tenant_id, request_id), _message)


def _message(state: BatchProgress) -> bytes:
    return b"event: batch.%b\ndata: %b\n\n" % (state.status.encode(), msgspec.json.encode(state))


async def _received(request: Request, kind: str, room: pathlib.Path) -> list[Part]:
    if kind == MEDIA_TYPE:
        folders = await _unpacked(request, room)
        return await in_thread(lambda: [buffer_part(folder, whole=False) for folder in folders])
    if kind == _ARROW:
        from noetl.archive.columns import read_events

        file = await _saved(request, room / "events.feather")
        return [events_part(file.name, lambda: read_events(file, file.name))]
    if kind == _JSON:
        return [await _parsed(request)]
    raise HTTPException(415, f"'{kind}' is not taken here; send {MEDIA_TYPE}, {_ARROW} or {_JSON}")


async def _unpacked(request: Request, room: pathlib.Path) -> list[pathlib.Path]:
    unpacker = Unpacker(room)
    try:
        async for piece in regroup(_bounded(request, MOST_BYTES)):
            await in_thread(unpacker.feed, piece)
        return unpacker.finish()
    finally:
        unpacker.close()


async def _saved(request: Request, file: pathlib.Path) -> pathlib.Path:
    with storage_errors(file), file.open("xb") as sink:
        async for piece in regroup(_bounded(request, MOST_BYTES)):
            await in_thread(sink.write, piece)
    return file


async def _parsed(request: Request) -> Part:
    body = b"".join([piece async for piece in _bounded(request, _MOST_JSON)])
    events = await in_thread(_events_in, body)
    return events_part("events", lambda: iter(events))


def _events_in(body: bytes) -> list[tuple[str, Envelope]]:
    try:
        raw = msgspec.json.decode(body, type=_Events).events
    except msgspec.ValidationError as error:
        raise InvalidInput(f'the body is not {{"events": [...]}}: {error}') from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    return list(_placed(raw))


def _placed(raw: list[msgspec.Raw]) -> Iterator[tuple[str, Envelope]]:
    for number, data in enumerate(raw):
        place = f"events[{number}]"
        yield place, parse_line(bytes(data) + b"\n", place)


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


def _ingest_of(request: Request) -> Ingest:
    """The ingest of this application; made with the first request, when nothing can be arriving yet."""
    state = request.app.state
    if not hasattr(state, "ingest"):
        services = services_of(request)
        ingest = Ingest(services.embedded, services.place.home, services.quotas)
        ingest.sweep()
        state.ingest = ingest
    found: Ingest = state.ingest
    return found


def _origin_of(request: Request, asking: Caller) -> Origin:
    origin = origin_of(services_of(request).settings, asking.tenant_id, asking.organization_id)
    return msgspec.structs.replace(origin, principal=asking.principal)
