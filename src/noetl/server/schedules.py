"""Routes of schedules: playbooks by the clock."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from noetl.ports.schedules import Schedule
from noetl.runtime.schedules.book import ScheduleBook, book_of
from noetl.runtime.schedules.service import firer_of
from noetl.runtime.schedules.views import (
    ScheduleList,
    ScheduleRemoved,
    ScheduleRequest,
    ScheduleRun,
    ScheduleView,
    views_of,
)
from noetl.server.context import Caller, require, services_of
from noetl.server.wire import answer, described, read

__all__ = ["router"]

router = APIRouter(prefix="/api/schedules", tags=["schedules"])

_READ, _EXECUTE = Depends(require("read")), Depends(require("execute"))

Name = Annotated[str, Path(min_length=1, max_length=100, description="The schedule.")]


@router.post("", **described(ScheduleView, 404, 409, takes=ScheduleRequest))
async def add(request: Request, asking: Caller = _EXECUTE) -> Response:
    """Have a playbook run by the clock of a time zone."""
    asked = await read(request, ScheduleRequest)
    made = await _book(request).add(asking, asked.name, asked.plan(), replace=asked.replace)
    return await _shown(request, made)


@router.get("", **described(ScheduleList))
async def list_schedules(
    request: Request,
    asking: Caller = _READ,
    cursor: Annotated[str | None, Query(max_length=4096)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List schedules with their next and their last run."""
    services = services_of(request)
    page = await _book(request).list(asking, cursor=cursor, limit=limit)
    await services.project()
    views = await views_of(services.embedded, page.schedules)
    return answer(ScheduleList(schedules=views, next_cursor=page.next_cursor))


@router.get("/{name}", **described(ScheduleView, 404))
async def one(request: Request, name: Name, asking: Caller = _READ) -> Response:
    """One schedule with its next and its last run."""
    found = await _book(request).get(asking, name)
    await services_of(request).project()
    return await _shown(request, found)


@router.delete("/{name}", **described(ScheduleRemoved, 404, 409))
async def remove(request: Request, name: Name, asking: Caller = _EXECUTE) -> Response:
    """Take a schedule away; what it has started goes on."""
    await _book(request).remove(asking, name)
    return answer(ScheduleRemoved(name=name, removed=True))


@router.post("/{name}/pause", **described(ScheduleView, 404, 409))
async def pause(request: Request, name: Name, asking: Caller = _EXECUTE) -> Response:
    """Hold a schedule: until it is resumed none of its times counts, and none is missed."""
    return await _shown(request, await _book(request).pause(asking, name))


@router.post("/{name}/resume", **described(ScheduleView, 404, 409))
async def resume(request: Request, name: Name, asking: Caller = _EXECUTE) -> Response:
    """Let a schedule go on with its next time."""
    return await _shown(request, await _book(request).resume(asking, name))


@router.post("/{name}/run", **described(ScheduleRun, 404, 409))
async def run(request: Request, name: Name, asking: Caller = _EXECUTE) -> Response:
    """Run a schedule now, whatever its times are."""
    execution_id = await firer_of(services_of(request)).run(asking, name)
    return answer(ScheduleRun(name=name, execution_id=str(execution_id)))


def _book(request: Request) -> ScheduleBook:
    services = services_of(request)
    return book_of(services.embedded, services.settings)


async def _shown(request: Request, schedule: Schedule) -> Response:
    return answer((await views_of(services_of(request).embedded, [schedule]))[0])
