"""Events that workers report (DSL 11, 13), for those that speak in events: what each one asks of the desk."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from noetl.errors import InvalidInput
from noetl.kernel.event import Json
from noetl.kernel.ids import MAX_ID
from noetl.kernel.vocabulary import canonical_type
from noetl.runtime.remote.desk import Desk
from noetl.runtime.remote.wire import BeatRequest, ReportRequest

__all__ = ["ReportedEvent", "read_reported", "take_reported"]

Id = Annotated[int, Meta(ge=0, le=MAX_ID)] | Annotated[str, Meta(pattern="^[0-9]{1,19}$")]
_DONE = ("call.done", "command.completed")
_FAILED = ("call.error", "command.failed")
_BEAT = "command.heartbeat"
_SPELLINGS = {"name": "event_type", "payload": "context", "node_name": "step"}


class ReportedEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker says of a command that it has claimed, as an event.

    `result` is `{status, context}`, `error` as the language has it. `token` and `stage` are those of the claim.
    """

    event_type: Annotated[str, Meta(min_length=1, max_length=200)]
    execution_id: Id
    command_id: Id
    worker_id: Annotated[str, Meta(min_length=1, max_length=1024)]
    token: Annotated[int, Meta(ge=0, le=MAX_ID)]
    tenant_id: Annotated[str, Meta(min_length=1, max_length=200)] = "default"
    organization_id: Annotated[str, Meta(min_length=1, max_length=200)] = "default"
    stage: Annotated[int, Meta(ge=0, le=MAX_ID)] = 0
    step: str = ""
    kind: str = ""
    status: str | None = None
    context: Json | None = None
    result: Json | None = None
    error: Json | None = None
    set: Json = {}


def read_reported(said: Any) -> ReportedEvent:
    """An event as a worker may spell it. Raises InvalidInput."""
    if isinstance(said, dict):
        said = {_SPELLINGS.get(name, name): value for name, value in said.items()}
    try:
        return msgspec.convert(said, ReportedEvent)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the event is not valid: {error}") from None


async def take_reported(desk: Desk, event: ReportedEvent) -> bool:
    """Do what the event asks for; False if it was not awaited any more. Raises LeaseLost, InvalidInput."""
    asked = {name: getattr(event, name) for name in ("tenant_id", "organization_id", "worker_id", "step", "kind")}
    asked |= {"execution_id": int(event.execution_id), "token": event.token, "stage": event.stage}
    command_id, kind = int(event.command_id), canonical_type(event.event_type)
    if kind == _BEAT:
        await desk.heartbeat(command_id, BeatRequest(**asked))
        return True
    said: Json = {"command_id": command_id, "set": event.set}
    if kind in _DONE:
        said["result"] = _value(event)
    elif kind in _FAILED:
        said["error"] = {**_unsaid(event), **(event.error or {})}
    else:
        raise InvalidInput(
            f"workers do not report '{event.event_type[:80]}'", hint=f"report {', '.join((*_DONE, *_FAILED, _BEAT))}"
        )
    return (await desk.report(command_id, ReportRequest(**asked, report=said))).taken


def _value(event: ReportedEvent) -> Any:
    result = event.result or {}
    if "reference" in result:
        raise InvalidInput(
            "a result that is stored elsewhere cannot be reported as an event",
            hint="send it to /api/commands/{id}/report",
        )
    return result.get("context", {})


def _unsaid(event: ReportedEvent) -> Json:
    message = f"the worker reported {event.event_type}"
    return {"kind": "unknown", "code": "UNKNOWN", "message": message, "retryable": False}
