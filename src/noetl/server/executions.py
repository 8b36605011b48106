"""Routes of executions: starting, looking, ending."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from noetl.errors import InvalidInput, NoetlError
from noetl.kernel.event import Json
from noetl.kernel.ids import MAX_ID
from noetl.observe import traces
from noetl.runtime.logs import LogPage, read_logs
from noetl.runtime.service.shapes import (
    Analysis,
    CancelAnswer,
    CancellationCheck,
    CancelRequest,
    CleanupAnswer,
    CleanupRequest,
    EventPage,
    ExecuteAnswer,
    ExecuteRequest,
    ExecutionDetail,
    ExecutionPage,
    FinalizeAnswer,
    FinalizeRequest,
    RetryAnswer,
    RetryRequest,
    StatusView,
)
from noetl.runtime.stages.progress import ExecutionProgress
from noetl.server.context import Caller, require, service_for, services_of
from noetl.server.problems import Problem, problem_of
from noetl.server.wire import answer, described, read

__all__ = ["BatchAnswer", "BatchItem", "BatchRequest", "router"]

router = APIRouter(prefix="/api", tags=["executions"])

_MOST_ITEMS = 1000
_READ, _EXECUTE, _ADMIN = Depends(require("read")), Depends(require("execute")), Depends(require("admin"))
_permit_execute = require("execute")

ExecutionId = Annotated[int, Path(ge=0, le=MAX_ID, description="The execution.")]
Page = Annotated[int, Query(ge=1, le=1_000_000, description="The number of the page, from 1.")]
PageSize = Annotated[int, Query(ge=1, le=1000, description="How many on a page.")]
Cursor = Annotated[str | None, Query(max_length=1024, description="The next_cursor of the page before; it wins.")]
Status = Annotated[
    Literal[
        "PENDING",
        "RUNNING",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "pending",
        "running",
        "completed",
        "failed",
        "cancelled",
    ]
    | None,
    Query(description="Only these."),
]
EventType = Annotated[str | None, Query(max_length=200, description="Only these; older spellings are understood.")]


class BatchRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Executions to be started, each as for `/execute`."""

    items: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=_MOST_ITEMS)]


class BatchItem(msgspec.Struct, kw_only=True):
    """What became of one of them: an execution, or the problem with it."""

    index: int
    execution_id: str | None = None
    status: str | None = None
    commands_generated: int | None = None
    error: Problem | None = None


class BatchAnswer(msgspec.Struct, kw_only=True):
    """One answer for each item, in their order."""

    items: list[BatchItem]
    accepted: int
    rejected: int


@router.post(
    "/execute",
    **described(ExecuteAnswer, 404, 409, 429, takes=ExecuteRequest),
)
async def execute(request: Request) -> Response:
    """Run a playbook of the catalog. The answer comes when the execution's beginning is durable.

    With a header `Idempotency-Key`, or `idempotency_key` in the body, the same key gives the same execution again.
    Headers `traceparent` and `tracestate` put the execution into the trace of the caller.
    """
    asking = await _permit_execute(request)
    asked = await read(request, ExecuteRequest)
    key = request.headers.get("idempotency-key")
    if key is not None:
        asked.idempotency_key = _key(key, asked.idempotency_key)
    service = await service_for(request, asking)
    with traces.at(traces.read(request.headers)):
        return answer(await service.execute(asked, asking.principal))


@router.post("/execute/batch", **described(BatchAnswer, takes=BatchRequest))
async def execute_batch(request: Request, asking: Caller = _EXECUTE) -> Response:
    """Run several. A bad item is answered by its problem and spoils no other."""
    asked = await read(request, BatchRequest)
    service = await service_for(request, asking)
    with traces.at(traces.read(request.headers)):
        answers = await service.execute_batch([_item(one) for one in asked.items], asking.principal)
    items = [_outcome(index, one) for index, one in enumerate(answers)]
    accepted = sum(one.error is None for one in items)
    return answer(BatchAnswer(items=items, accepted=accepted, rejected=len(items) - accepted))


@router.get("/executions", **described(ExecutionPage))
async def executions(
    request: Request,
    asking: Caller = _READ,
    status: Status = None,
    path: Annotated[str | None, Query(max_length=1024, description="Only those of this playbook.")] = None,
    parent_execution_id: Annotated[int | None, Query(ge=0, le=MAX_ID, description="Only those it has called.")] = None,
    page: Page = 1,
    page_size: PageSize = 50,
    cursor: Cursor = None,
) -> Response:
    """Executions, newest first. Page numbers reach 10,000 executions; cursors reach them all."""
    service = await service_for(request, asking)
    return answer(
        await service.reading.executions(
            status=status,
            path=path,
            parent_execution_id=parent_execution_id,
            page=page,
            page_size=page_size,
            cursor=cursor,
        )
    )


@router.post("/executions/cleanup", **described(CleanupAnswer, takes=CleanupRequest, optional=True))
async def cleanup(request: Request, asking: Caller = _ADMIN) -> Response:
    """Cancel executions that have been running for too long."""
    asked = await read(request, CleanupRequest, empty=CleanupRequest())
    service = await service_for(request, asking)
    return answer(await service.cleanup(asked, asking.principal))


@router.get("/executions/{execution_id}", **described(ExecutionDetail, 404))
async def execution(
    execution_id: ExecutionId, request: Request, asking: Caller = _READ, page: Page = 1, page_size: PageSize = 100
) -> Response:
    """One execution with a page of its events."""
    service = await service_for(request, asking)
    return answer(await service.reading.execution(execution_id, page=page, page_size=page_size))


@router.get("/executions/{execution_id}/status", **described(StatusView, 404))
async def status(execution_id: ExecutionId, request: Request, asking: Caller = _READ) -> Response:
    """What an execution has come to, and what it is doing."""
    service = await service_for(request, asking)
    return answer(await service.reading.status(execution_id))


@router.get("/executions/{execution_id}/events", **described(EventPage, 404))
async def events(
    execution_id: ExecutionId,
    request: Request,
    asking: Caller = _READ,
    page: Page = 1,
    page_size: PageSize = 100,
    event_type: EventType = None,
    cursor: Cursor = None,
) -> Response:
    """The events of an execution, in the order they were committed."""
    service = await service_for(request, asking)
    return answer(
        await service.reading.events(
            execution_id, page=page, page_size=page_size, event_type=event_type or None, cursor=cursor
        )
    )


@router.get("/executions/{execution_id}/cancellation-check", **described(CancellationCheck, 404))
async def cancellation_check(execution_id: ExecutionId, request: Request, asking: Caller = _READ) -> Response:
    """Whether work on an execution is still wanted."""
    service = await service_for(request, asking)
    return answer(await service.reading.cancellation_check(execution_id))


@router.post(
    "/executions/{execution_id}/cancel", **described(CancelAnswer, takes=CancelRequest, optional=True, missing=True)
)
async def cancel(execution_id: ExecutionId, request: Request, asking: Caller = _EXECUTE) -> Response:
    """End an execution and, unless `cascade` is false, those it has called."""
    asked = await read(request, CancelRequest, empty=CancelRequest())
    service = await service_for(request, asking)
    said = await service.cancel(execution_id, asked, asking.principal)
    return answer(said, 404 if said.status == "not_found" else 200)


@router.post(
    "/executions/{execution_id}/finalize",
    **described(FinalizeAnswer, takes=FinalizeRequest, optional=True, missing=True),
)
async def finalize(execution_id: ExecutionId, request: Request, asking: Caller = _EXECUTE) -> Response:
    """End an execution by hand as FAILED or COMPLETED."""
    asked = await read(request, FinalizeRequest, empty=FinalizeRequest())
    service = await service_for(request, asking)
    said = await service.finalize(execution_id, asked, asking.principal)
    return answer(said, 404 if said.status == "not_found" else 200)


@router.post(
    "/executions/{execution_id}/retry", **described(RetryAnswer, 404, 409, 429, takes=RetryRequest, optional=True)
)
async def retry(execution_id: ExecutionId, request: Request, asking: Caller = _EXECUTE) -> Response:
    """Start a new execution that adopts the results of this one and begins at a step, by default the one that failed.

    Side effects of that step and of those after it happen again. A header `Idempotency-Key` is understood, too.
    """
    asked = await read(request, RetryRequest, empty=RetryRequest())
    key = request.headers.get("idempotency-key")
    if key is not None:
        asked.idempotency_key = _key(key, asked.idempotency_key)
    service = await service_for(request, asking)
    return answer(await service.retry(execution_id, asked, asking.principal))


@router.get("/executions/{execution_id}/progress", **described(ExecutionProgress, 404))
async def progress(execution_id: ExecutionId, request: Request, asking: Caller = _READ) -> Response:
    """How far the data stages of an execution have come."""
    service = await service_for(request, asking)
    return answer(await service.progress(execution_id))


@router.post("/executions/{execution_id}/analyze", **described(Analysis, 404))
async def analyze(execution_id: ExecutionId, request: Request, asking: Caller = _READ) -> Response:
    """What stands out in an execution, and what to try."""
    service = await service_for(request, asking)
    return answer(await service.analyze(execution_id))


@router.get("/executions/{execution_id}/logs", **described(LogPage, 404))
async def logs(
    execution_id: ExecutionId,
    request: Request,
    asking: Caller = _READ,
    step: Annotated[str | None, Query(max_length=1024, description="Only lines of this step.")] = None,
    task: Annotated[str | None, Query(max_length=1024, description="Only lines of this task.")] = None,
    after: Annotated[int, Query(ge=0, le=MAX_ID, description="Where the page before ended.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000, description="At most so many lines.")] = 1000,
) -> Response:
    """What the tasks of an execution have printed."""
    service = await service_for(request, asking)
    await service.reading.check(execution_id)
    home = services_of(request).place.home
    return answer(await read_logs(home, asking.tenant_id, execution_id, step, after, limit, task=task))


def _item(value: Json) -> ExecuteRequest | NoetlError:
    try:
        return msgspec.convert(value, ExecuteRequest)
    except msgspec.ValidationError as error:
        return InvalidInput(f"the item is not valid: {error}")


def _outcome(index: int, said: ExecuteAnswer | NoetlError) -> BatchItem:
    if isinstance(said, NoetlError):
        return BatchItem(index=index, error=problem_of(said))
    return BatchItem(index=index, **msgspec.structs.asdict(said))


def _key(header: str, in_body: str | None) -> str:
    if in_body is not None and in_body != header:
        raise InvalidInput("the header and the body name two idempotency keys", hint="send one of them")
    if not 0 < len(header) <= 1024:
        raise InvalidInput("an idempotency key has 1 to 1,024 characters")
    return header
