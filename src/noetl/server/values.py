"""Routes of what executions hold: variables, results, loops, templates, replayed states."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from noetl.errors import InvalidInput
from noetl.kernel.event import Json
from noetl.kernel.ids import MAX_ID
from noetl.kernel.time import parse_time
from noetl.replay.service import Cutoff
from noetl.runtime.service.shapes import (
    LoopResults,
    RenderAnswer,
    RenderRequest,
    Resolved,
    ResultView,
    Variable,
    Variables,
    VariablesPatch,
    VariablesPatched,
)
from noetl.server.context import Caller, require, service_for
from noetl.server.executions import ExecutionId
from noetl.server.wire import answer, described, read

__all__ = ["ReplayedState", "router"]

router = APIRouter(prefix="/api")

_READ, _EXECUTE = Depends(require("read")), Depends(require("execute"))

InQuery = Annotated[int, Query(ge=0, le=MAX_ID, description="The execution.")]
Moment = Annotated[int | None, Query(ge=0, le=MAX_ID)]
Name = Annotated[str, Path(min_length=1, max_length=1024, description="A name; dots reach inside mappings.")]
Step = Annotated[str, Path(min_length=1, max_length=1024, description="The step.")]
Ref = Annotated[str, Query(min_length=1, max_length=4096, description="A noetl:// address.")]


class ReplayedState(msgspec.Struct, kw_only=True):
    """The state of an execution as of a moment; more fields than these are there."""

    execution_id: str
    status: str | None
    event_count: int
    last_event_id: str | None
    stages: list[Json]
    frames: list[Json]
    commands: list[Json]
    business_objects: list[Json]
    loops: list[Json]
    projection_checksums: dict[str, str]
    upcaster_registry_digest: str
    snapshot: Json
    checksum: str


@router.get("/vars/{execution_id}", tags=["variables"], **described(Variables, 404))
async def variables(execution_id: ExecutionId, request: Request, asking: Caller = _READ) -> Response:
    """The `ctx` of an execution."""
    service = await service_for(request, asking)
    return answer(await service.results.variables(execution_id))


@router.post("/vars/{execution_id}", tags=["variables"], **described(VariablesPatched, 404, 409, takes=VariablesPatch))
async def patch_variables(execution_id: ExecutionId, request: Request, asking: Caller = _EXECUTE) -> Response:
    """Set values of `ctx`. An execution that has ended has none to set."""
    asked = await read(request, VariablesPatch)
    service = await service_for(request, asking)
    return answer(await service.patch(execution_id, asked.variables, asking.principal))


@router.get("/vars/{execution_id}/{name}", tags=["variables"], **described(Variable, 404))
async def variable(execution_id: ExecutionId, name: Name, request: Request, asking: Caller = _READ) -> Response:
    """One value of `ctx`."""
    service = await service_for(request, asking)
    return answer(await service.results.variable(execution_id, name))


@router.delete("/vars/{execution_id}/{name}", tags=["variables"], **described(VariablesPatched, 404, 409))
async def delete_variable(
    execution_id: ExecutionId, name: Name, request: Request, asking: Caller = _EXECUTE
) -> Response:
    """Remove a value of `ctx`."""
    service = await service_for(request, asking)
    return answer(await service.unset(execution_id, name, asking.principal))


async def resolve(ref: Ref, request: Request, asking: Caller = _READ) -> Response:
    """What an address stands for: a result, or stored bytes."""
    service = await service_for(request, asking)
    return answer(await service.results.resolve(ref))


async def execution_result(execution_id: ExecutionId, request: Request, asking: Caller = _READ) -> Response:
    """The result of an execution."""
    service = await service_for(request, asking)
    return answer(await service.results.result(execution_id))


async def result(execution_id: ExecutionId, step: Step, request: Request, asking: Caller = _READ) -> Response:
    """The whole result of a step."""
    service = await service_for(request, asking)
    return answer(await service.results.result(execution_id, step))


for _prefix in ("result", "temp"):  # the second is an older name
    _add: Any = {"tags": ["results"], "deprecated": _prefix == "temp", "methods": ["GET"]}
    router.add_api_route(f"/{_prefix}/resolve", resolve, name=f"{_prefix}_resolve", **_add, **described(Resolved, 404))
    router.add_api_route(
        f"/{_prefix}/{{execution_id}}",
        execution_result,
        name=f"{_prefix}_execution",
        **_add,
        **described(ResultView, 404),
    )
    router.add_api_route(
        f"/{_prefix}/{{execution_id}}/{{step}}", result, name=f"{_prefix}_step", **_add, **described(ResultView, 404)
    )


@router.get("/replay/state", tags=["replay"], **described(ReplayedState, 404))
async def replay_state(
    execution_id: InQuery,
    request: Request,
    asking: Caller = _READ,
    as_of_event_id: Moment = None,
    as_of_position: Moment = None,
    as_of_time: Annotated[
        str | None, Query(max_length=64, description="ISO 8601; UTC unless it says otherwise.")
    ] = None,
) -> Response:
    """The state of an execution as of at most one moment, with the checksums that prove it."""
    given = {"as_of_event_id": as_of_event_id, "as_of_position": as_of_position, "as_of_time": as_of_time}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidInput(f"{' and '.join(named)} exclude each other", hint="ask for one moment")
    time = None if as_of_time is None else parse_time(as_of_time)
    cutoff = Cutoff(event_id=as_of_event_id, position=as_of_position, time=time)
    service = await service_for(request, asking)
    return answer(await service.reading.replay_state(execution_id, cutoff))


@router.get("/aggregate/loop/results", tags=["results"], **described(LoopResults, 404))
async def loop_results(
    execution_id: InQuery,
    step: Annotated[str, Query(min_length=1, max_length=1024, description="The loop.")],
    request: Request,
    asking: Caller = _READ,
) -> Response:
    """The results of a loop's iterations, and how many went well."""
    service = await service_for(request, asking)
    return answer(await service.results.loop_results(execution_id, step))


@router.post("/context/render", tags=["results"], **described(RenderAnswer, 404, takes=RenderRequest))
async def render(request: Request, asking: Caller = _READ) -> Response:
    """Render templates with what an execution knows. Secrets are not among it."""
    asked = await read(request, RenderRequest)
    service = await service_for(request, asking)
    return answer(await service.results.render(asked))
