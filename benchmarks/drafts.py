"""The events that benchmarks write: what one step of a playbook, and one frame of a stage, really leave behind."""

from __future__ import annotations

from typing import Any

from noetl.kernel.event import Draft, Ref
from noetl.kernel.streams import execution_stream, stage_stream
from noetl.kernel.tail import Stream

__all__ = ["TENANT", "end", "execution", "frame", "stage", "start", "step"]

TENANT = "default"
_WORKER = "noetl://tenant/default/org/default/region/local/zone/a/cluster/c1/node/n1/worker/w-1"


def execution(execution_id: int) -> Stream:
    """The execution's own stream."""
    return Stream(TENANT, execution_stream(execution_id))


def stage(execution_id: int, stage_id: int) -> Stream:
    """A stage's stream."""
    return Stream(TENANT, stage_stream(execution_id, stage_id))


def start(execution_id: int) -> list[Draft]:
    """How an execution begins."""
    return [
        _draft(execution_id, "playbook.initialized", payload={"path": "bench/chain", "workload": {"n": 1}}),
        _draft(execution_id, "workflow.initialized", node_name="s0"),
    ]


def end(execution_id: int) -> list[Draft]:
    """How an execution ends."""
    return [
        _draft(execution_id, "workflow.completed", status="COMPLETED"),
        _draft(execution_id, "playbook.completed", status="COMPLETED", payload={"result": {"ok": True}}),
    ]


def step(execution_id: int, number: int, *, offset: int = 0) -> list[Draft]:
    """The eight events of one step; `offset` is where they stand in their append."""
    own: dict[str, Any] = {"aggregate_type": "command", "command_id": Ref(offset), "node_name": f"step_{number}"}
    worker = {"worker_id": "w-1", "node_id": "n1"}
    result = {"status": "ok", "context": {"rows": 12 + number, "name": "orders", "ok": True}}
    key = f"bench/{execution_id}/{number}"
    return [
        _draft(execution_id, "command.issued", payload={"kind": "python", "input": {"n": number}}, **own),
        _draft(execution_id, "command.claimed", meta=worker, **own),
        _draft(execution_id, "command.started", meta=worker, **own),
        _draft(execution_id, "step.enter", **own),
        _draft(execution_id, "call.done", status="COMPLETED", payload={"result": result}, idempotency_key=key, **own),
        _draft(execution_id, "step.exit", status="COMPLETED", payload={"set": {"ctx.last": number}}, **own),
        _draft(execution_id, "command.completed", status="COMPLETED", **own),
        _draft(execution_id, "step.routed", payload={"arcs": [f"step_{number + 1}"]}, **own),
    ]


def frame(execution_id: int, stage_id: int, number: int, *, offset: int = 0) -> list[Draft]:
    """The five events of one frame, which leave one row."""
    own: dict[str, Any] = {
        "aggregate_type": "frame",
        "stage_id": stage_id,
        "frame_id": Ref(offset),
        "node_name": "load",
    }
    worker = {"worker_id": "w-1"}
    return [
        _draft(execution_id, "frame.dispatched", meta=worker, payload={"slot": 1, "frame_index": number}, **own),
        _draft(execution_id, "frame.started", meta=worker, **own),
        _draft(execution_id, "frame.heartbeat", meta=worker, **own),
        _draft(execution_id, "frame.heartbeat", meta=worker, **own),
        _draft(
            execution_id,
            "frame.committed",
            payload={"rows": 50, "outcomes": {"ok": 49, "failed": 1}},
            meta=worker,
            **own,
        ),
    ]


def _draft(execution_id: int, event_type: str, **fields: Any) -> Draft:
    return Draft(
        event_type=event_type,
        tenant_id=TENANT,
        organization_id="default",
        project_id="default",
        principal="bench",
        producer=_WORKER,
        execution_id=execution_id,
        **fields,
    )
