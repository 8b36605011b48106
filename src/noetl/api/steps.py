"""The steps of an execution as its events tell them: when each began, how it ended, how often it ran."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from noetl.kernel.event import Envelope
from noetl.kernel.time import parse_time

__all__ = ["STEP_EVENTS", "StepLine", "failed_step", "steps_of"]

STEP_EVENTS = frozenset({"command.issued", "loop.opened", "step.exit", "step.skipped", "loop.done"})


class StepLine(msgspec.Struct, kw_only=True):
    """One step, over all its runs."""

    name: str
    status: str = "RUNNING"
    runs: int = 0
    iterations: int | None = None
    duration_ms: int = 0
    error: str | None = None
    unhandled: bool = False


def steps_of(events: Iterable[Envelope], execution_id: int) -> list[StepLine]:
    """The steps of one execution, in the order in which they began."""
    lines: dict[str, StepLine] = {}
    begun: dict[str, str] = {}
    for event in events:
        if event.execution_id != execution_id or event.node_name is None or event.event_type not in STEP_EVENTS:
            continue
        name = event.node_name
        line = lines.setdefault(name, StepLine(name=name))
        if event.event_type in ("command.issued", "loop.opened"):
            begun.setdefault(name, event.event_time)
            line.status = "RUNNING"
        if event.event_type == "loop.opened":
            line.iterations = (line.iterations or 0) + int(event.payload.get("total") or 0)
        elif event.event_type == "step.skipped":
            line.status = "SKIPPED"
        elif event.event_type == "step.exit":
            _exited(line, event, begun.pop(name, event.event_time))
    return list(lines.values())


def failed_step(lines: Iterable[StepLine]) -> str | None:
    """The step whose failure nobody handled, if there is one."""
    return next((line.name for line in lines if line.unhandled), None)


def _exited(line: StepLine, event: Envelope, begun: str) -> None:
    line.runs += 1
    line.status = event.status or "COMPLETED"
    line.duration_ms += max(0, parse_time(event.event_time) - parse_time(begun)) // 1000
    unhandled = event.payload.get("unhandled")
    if isinstance(unhandled, dict):
        line.unhandled = True
        line.error = f"{unhandled.get('code', 'UNKNOWN')}: {unhandled.get('message', '')}"
