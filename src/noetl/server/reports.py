"""The route of reports: what workers say of their commands, as events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from msgspec import Meta

from noetl.errors import InvalidInput, NoetlError, NotFound
from noetl.kernel.streams import execution_stream
from noetl.ports.ledger import Stream
from noetl.runtime.remote.reported import ReportedEvent, read_reported, take_reported
from noetl.server.context import require, services_of
from noetl.server.problems import Problem, problem_of
from noetl.server.wire import answer, described, read

__all__ = ["router"]

router = APIRouter(prefix="/api/events", tags=["workers"])

_MOST_EVENTS = 1000


class ReportedEvents(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Several events; each counts by itself."""

    events: Annotated[list[Any], Meta(min_length=1, max_length=_MOST_EVENTS)]


class ReportTaken(msgspec.Struct, kw_only=True):
    """What has come of an event. `event_id` is the last event of the execution then."""

    status: Literal["ok", "ignored", "refused"]
    event_id: str | None = None
    commands_generated: int = 0
    error: Problem | None = None


class ReportsTaken(msgspec.Struct, kw_only=True):
    """One answer for each event, in their order."""

    items: list[ReportTaken]


def _described() -> dict[str, Any]:
    found = described(ReportTaken, 404, 409, takes=ReportedEvent)
    several = described(ReportsTaken, takes=ReportedEvents)
    for place in (("responses", 200), ("openapi_extra", "requestBody")):
        one, other = (said[place[0]][place[1]]["content"]["application/json"] for said in (found, several))
        one["schema"] = {"anyOf": [one["schema"], other["schema"]]}
    return found


@router.post("", dependencies=[Depends(require("work"))], **_described())
async def report(request: Request) -> Response:
    """Take an event that a worker reports of a command in its hands, or several as `{"events": [...]}`.

    `call.done` and `call.error` (or `command.completed` and `command.failed`) end the command,
    `command.heartbeat` keeps it.
    """
    said = await read(request, Any)  # either of two shapes
    if not isinstance(said, dict):
        raise InvalidInput("an event is a JSON object", hint='or send {"events": [...]}')
    if "events" not in said:
        return answer(await _taken(request, read_reported(said)))
    try:
        several = msgspec.convert(said, ReportedEvents).events
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the body is not valid: {error}") from None
    return answer(ReportsTaken(items=[await _answered(request, one) for one in several]))


async def _answered(request: Request, said: Any) -> ReportTaken:
    try:
        return await _taken(request, read_reported(said))
    except NoetlError as error:
        return ReportTaken(status="refused", error=problem_of(error))


async def _taken(request: Request, event: ReportedEvent) -> ReportTaken:
    services = services_of(request)
    if services.place.lease_seconds is None:
        raise NotFound("this server runs its commands itself", hint="drop it")
    service = await services.of(event.tenant_id, event.organization_id)
    execution_id = int(event.execution_id)
    before = set((await service.reading.state(execution_id)).control.commands)
    taken = await take_reported(service.desk, event)
    after = set((await service.reading.state(execution_id)).control.commands)
    head = await services.embedded.ledger.head(Stream(event.tenant_id, execution_stream(execution_id)))
    return ReportTaken(
        status="ok" if taken else "ignored",
        event_id=None if head is None else str(head.event_id),
        commands_generated=len(after - before),
    )
