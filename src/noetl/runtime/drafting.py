"""From what the engine has decided to what the log is given."""

from __future__ import annotations

from noetl.engine.fact import Fact
from noetl.kernel.event import Draft, Json, PayloadRef, Ref
from noetl.runtime.execution import Execution
from noetl.runtime.requests import Origin
from noetl.runtime.tracing import with_trace

__all__ = ["drafted"]


def drafted(
    origin: Origin, execution: Execution, fact: Fact, who: str, key: str | None, payload: Json, ref: PayloadRef | None
) -> Draft:
    """A fact as a draft, by `who`; its `payload` and what that refers to are as they fit an event."""
    return Draft(
        event_type=fact.event_type,
        tenant_id=origin.tenant_id,
        organization_id=origin.organization_id,
        project_id=origin.project_id,
        principal=who,
        producer=origin.producer,
        execution_id=execution.control.execution_id,
        parent_execution_id=execution.control.parent_execution_id,
        aggregate_type=fact.aggregate_type,
        aggregate_id=fact.aggregate_id,
        command_id=_resolved(fact.command_id),
        stage_id=None if fact.stage_id is None else _resolved(fact.stage_id),
        node_name=fact.node_name,
        status=fact.status,
        attempt=fact.attempt,
        payload=payload,
        payload_ref=ref,
        meta=fact.meta if execution.trace is None else with_trace(fact, execution.trace),
        idempotency_key=key,
    )


def _resolved(place: int | None) -> int | Ref | None:
    """An id; what is below zero stands for that of a fact of the same decision."""
    return Ref(-place - 1) if place is not None and place < 0 else place
