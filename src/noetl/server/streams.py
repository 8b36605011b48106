"""Server-sent events: the log as it grows, for whoever keeps a connection open."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from noetl.errors import Conflict, InvalidInput
from noetl.kernel.event import Envelope
from noetl.kernel.ids import MAX_ID
from noetl.kernel.plain import with_text_ids
from noetl.runtime.service.following import Change
from noetl.server.auth import is_still_admitted
from noetl.server.context import Caller, require, service_for
from noetl.server.wire import described

__all__ = ["router", "streaming"]

router = APIRouter(prefix="/api", tags=["streams"])

T = TypeVar("T")

_BEAT_SECONDS = 15.0
_CHECK_SECONDS = 5.0
_BEAT = b": still here\n\n"
_MEDIA_TYPE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_READ = Depends(require("read"))
_STREAM: dict[str, Any] = {
    "description": "Server-sent events.",
    "content": {_MEDIA_TYPE: {"schema": {"type": "string"}}},
}

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="The last `id` that was seen.")]
After = Annotated[int | None, Query(ge=0, le=MAX_ID, description="The same, for those who cannot send headers.")]


def _described(*errors: int) -> dict[str, Any]:
    found = described(None, *errors)
    found["responses"][200] = _STREAM
    return found


@router.get("/executions/{execution_id}/stream", **_described(404))
async def execution_stream(
    execution_id: Annotated[int, Path(ge=0, le=MAX_ID)],
    request: Request,
    asking: Caller = _READ,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Each event of an execution's own stream as it commits, up to the terminal one.

    `id` is the version in that stream. Who comes back with it misses nothing; who has seen the end gets 204.
    """
    service = await service_for(request, asking)
    try:
        events = await service.reading.follow(execution_id, _seen(last_event_id, after) or 0)
    except Conflict:
        return Response(status_code=204)
    return streaming(request, events, _event_message)


@router.get("/stream", **_described())
async def list_stream(
    request: Request, asking: Caller = _READ, last_event_id: LastEventId = None, after: After = None
) -> Response:
    """Executions as they begin and end. A message without an execution means: read the list again."""
    service = await service_for(request, asking)
    return streaming(request, service.reading.changes(_seen(last_event_id, after)), _change_message)


def _seen(header: str | None, query: int | None) -> int | None:
    if header is None or not header.strip():
        return query
    text = header.strip()
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_ID:
        raise InvalidInput(f"'{text[:40]}' is not an id of this stream", hint="send the last id that came")
    return int(text)


def streaming(request: Request, source: AsyncIterator[T], spell: Callable[[T], bytes]) -> Response:
    """The items of a source as they come, until it ends, the server goes down, or the caller's token does not hold."""
    return StreamingResponse(_messages(request, source, spell), media_type=_MEDIA_TYPE, headers=_HEADERS)


async def _messages(request: Request, source: AsyncIterator[T], spell: Callable[[T], bytes]) -> AsyncIterator[bytes]:
    """Messages as they come, and a sign of life in between. Nothing comes after the token was found to be void."""
    closing: asyncio.Event = request.app.state.closing
    yield _BEAT
    spoken = checked = time.monotonic()
    following = asyncio.ensure_future(_next(source))
    leaving = asyncio.ensure_future(closing.wait())
    try:
        while True:
            await asyncio.wait({following, leaving}, timeout=_CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            now = time.monotonic()
            if now - checked >= _CHECK_SECONDS:
                if not await is_still_admitted(request):
                    return
                checked = now
            if following.done():
                item = following.result()
                if item is None:
                    return
                yield spell(item)
                spoken = now
                following = asyncio.ensure_future(_next(source))
            elif leaving.done():
                return
            elif now - spoken >= _BEAT_SECONDS:
                yield _BEAT
                spoken = now
    finally:
        for task in (following, leaving):
            task.cancel()
        await asyncio.gather(following, leaving, return_exceptions=True)
        with contextlib.suppress(AttributeError):
            await source.aclose()  # type: ignore[attr-defined]  # generators have it


async def _next(source: AsyncIterator[T]) -> T | None:
    return await anext(source, None)


def _event_message(event: Envelope) -> bytes:
    data = msgspec.json.encode(with_text_ids(msgspec.to_builtins(event)))
    return b"id: %d\ndata: %b\n\n" % (event.stream_version, data)


def _change_message(change: Change) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (change.position, msgspec.json.encode(change))
