"""Executions and events as callers see them."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.kernel.event import Envelope, Json
from noetl.kernel.time import parse_time
from noetl.ports.projections import ProjectionRow
from noetl.runtime.driver import Execution
from noetl.runtime.service.shapes import EventView, ExecutionView
from noetl.runtime.showing import named_result

__all__ = ["duration_between", "event_view", "execution_view", "text_id"]

_WHOLE, _NEARLY = 100, 99


def execution_view(item: ProjectionRow, live: Execution | None, now: int) -> ExecutionView:
    """An execution from its row, and from memory where this process works on it."""
    row: Json = msgspec.json.decode(item.row)
    document = row.get("document") or {}
    ended = row.get("ended_at")
    version = document.get("version")
    return ExecutionView(
        execution_id=str(row.get("execution_id") or item.root.stream_id.split("/")[1]),
        catalog_id=text_id(document.get("catalog_id")),
        path=row.get("path"),
        version=version if isinstance(version, int) else None,
        status=row.get("status"),
        start_time=row.get("started_at"),
        end_time=ended,
        duration_seconds=duration_between(row.get("started_at"), ended, now),
        progress=_WHOLE if ended else _progress(live),
        result=_shown(row.get("result")),
        error=row.get("error"),
        parent_execution_id=text_id(row.get("parent_execution_id")),
        principal=row.get("principal"),
        event_count=row.get("event_count", 0),
    )


def event_view(event: Envelope, catalog_id: str | None) -> EventView:
    """An event in the columns of the language reference, 11."""
    meta, payload = event.meta, event.payload
    return EventView(
        execution_id=str(event.execution_id),
        catalog_id=catalog_id,
        event_id=str(event.event_id),
        parent_event_id=text_id(event.parent_event_id),
        parent_execution_id=text_id(event.parent_execution_id),
        prev_event_id=text_id(event.prev_event_id),
        event_type=event.event_type,
        node_id=meta.get("node_id") or event.node_name,
        node_name=event.node_name,
        node_type=meta.get("node_type") or payload.get("kind"),
        status=event.status,
        duration=_seconds(meta),
        context={name: value for name, value in payload.items() if name not in ("result", "error")},
        result=payload.get("result"),
        meta=meta,
        error=payload.get("error"),
        worker_id=meta.get("worker_id"),
        created_at=event.ingest_time,
        event_time=event.event_time,
        stage_id=text_id(event.stage_id),
        frame_id=text_id(event.frame_id),
        attempt=event.attempt,
    )


def text_id(value: int | str | None) -> str | None:
    """An id as text, where there is one."""
    return None if value is None else str(value)


def duration_between(begun: str | None, ended: str | None, now: int) -> float | None:
    """Seconds from a beginning to an end, or until now."""
    if begun is None:
        return None
    return max(0, (now if ended is None else parse_time(ended)) - parse_time(begun)) / 1e6


def _progress(live: Execution | None) -> int | None:
    if live is None:
        return None
    ended = sum(state.state == "ended" for state in live.control.steps.values())
    return min(_NEARLY, _WHOLE * ended // max(1, len(live.playbook.steps)))


def _shown(result: Any) -> Any:
    """A result as a list shows it: what is kept elsewhere is named, not fetched."""
    return named_result(result) if isinstance(result, dict) else result


def _seconds(meta: Json) -> float | None:
    if isinstance(meta.get("duration"), int | float):
        return float(meta["duration"])
    spent = meta.get("duration_ms")
    return spent / 1000 if isinstance(spent, int | float) else None
