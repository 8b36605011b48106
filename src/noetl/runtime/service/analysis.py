"""What stands out in an execution, and what to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from noetl.kernel.event import Json
from noetl.kernel.time import parse_time
from noetl.runtime.driver import Execution
from noetl.runtime.service.reading import Reading
from noetl.runtime.service.shapes import Analysis, Finding
from noetl.runtime.service.views import duration_between

__all__ = ["analyze"]

_LONG_SECONDS = 600.0
_SLOW_SHARE = 0.5
_SLOW_SECONDS = 1.0

_ADVICE = {
    "auth": "check the credential that the step names, and that this execution may use it",
    "rate_limit": "retry with a delay: a rule `when: output.error.retryable, then: {do: retry, delay: ...}`",
    "timeout": "raise spec.timeout of the task or of the step, or make the work smaller",
    "connection": "see whether the other side answers from here; a retry rule helps where it comes and goes",
    "db_connection": "see whether the database answers from here; a retry rule helps where it comes and goes",
    "server_error": "the other side failed; a retry rule helps where it comes and goes",
    "not_found": "check the address, path or name that the step uses",
    "transform": "look at the traceback: GET /api/executions/{id}/events?event_type=call.error",
    "missing_reference": "an object is gone; run the step that made it again",
}
_ANY = "look at the whole error: GET /api/executions/{id}/events?event_type=call.error"


async def analyze(reading: Reading, execution_id: int, now: int) -> Analysis:
    """Look at an execution's steps, commands and loops. Raises NotFound."""
    found = await reading.state(execution_id)
    row: Json = msgspec.json.decode((await reading.row(execution_id)).row)
    commands = await reading.rows(execution_id, "commands")
    loops = await reading.rows(execution_id, "loops")
    seconds = duration_between(row.get("started_at"), row.get("ended_at"), now)
    findings = [*_failures(found), *_unfinished(found, commands, now), *_slow(commands, seconds), *_loops(loops)]
    return Analysis(
        execution_id=str(execution_id),
        summary={
            "path": row.get("path"),
            "status": row.get("status"),
            "duration_seconds": seconds,
            "events": row.get("event_count", 0),
            "steps": {name: row.get(f"steps_{name}", 0) for name in ("entered", "exited", "skipped")},
            "commands": dict(Counter(command.get("status", "PENDING") for command in commands)),
            "loops": len(loops),
            "final_step": row.get("final_step"),
        },
        findings=findings,
        recommendations=_recommendations(found, findings, execution_id),
    )


def _failures(found: Execution) -> Iterable[Finding]:
    control = found.control
    if control.failure is not None:
        yield Finding(
            severity="error",
            code=str(control.failure.get("code", "UNKNOWN")),
            message=str(control.failure.get("message", "")),
            step=control.failed_step,
        )
    for name, state in control.steps.items():
        if state.state == "ended" and state.outcome == "error" and name != control.failed_step:
            error = state.error or {}
            text = f"step '{name}' failed and was handled: {error.get('message', '')}"
            yield Finding(severity="warning", code=str(error.get("code", "UNKNOWN")), message=text, step=name)


def _unfinished(found: Execution, commands: list[Json], now: int) -> Iterable[Finding]:
    if found.control.ended is None and not found.control.commands:
        yield Finding(severity="error", code="NOTHING_IN_FLIGHT", message="it has not ended, and nothing is in flight")
    for command in commands:
        waited = duration_between(command.get("issued_at"), None, now) or 0.0
        if "ended_at" not in command and found.control.ended is None and waited > _LONG_SECONDS:
            text = f"a command of step '{command.get('step')}' was issued {waited:.0f} s ago and has not ended"
            yield Finding(severity="warning", code="LONG_RUNNING", message=text, step=command.get("step"))
        if command.get("abandons"):
            text = f"a command of step '{command.get('step')}' lost its worker {command['abandons']} times"
            yield Finding(severity="warning", code="ABANDONED", message=text, step=command.get("step"))


def _slow(commands: list[Json], seconds: float | None) -> Iterable[Finding]:
    """The step that took most of the time, where one did."""
    spent: Counter[str] = Counter()
    for command in commands:
        if "ended_at" in command and "issued_at" in command:
            spent[command.get("step", "")] += parse_time(command["ended_at"]) - parse_time(command["issued_at"])
    for step, micros in spent.most_common(1):
        took = micros / 1e6
        if seconds and took > _SLOW_SECONDS and took > seconds * _SLOW_SHARE:
            text = f"step '{step}' took {took:.1f} s of {seconds:.1f} s"
            yield Finding(severity="info", code="SLOWEST_STEP", message=text, step=step)


def _loops(loops: list[Json]) -> Iterable[Finding]:
    for loop in loops:
        step: Any = loop.get("step")
        if loop.get("stalled"):
            yield Finding(severity="error", code="LOOP_STALLED", message=f"loop '{step}' made no progress", step=step)
        if loop.get("failed"):
            text = f"{loop['failed']} of {loop.get('total')} iterations of '{step}' failed"
            yield Finding(severity="warning", code="ITERATIONS_FAILED", message=text, step=step)


def _recommendations(found: Execution, findings: list[Finding], execution_id: int) -> list[str]:
    advice: list[str] = []
    if found.control.failure is not None:
        kind = str(found.control.failure.get("kind", "unknown"))
        advice.append(_ADVICE.get(kind, _ANY).replace("{id}", str(execution_id)))
    codes = {finding.code for finding in findings}
    if "LONG_RUNNING" in codes:
        advice.append(f"cancel it if it is stuck: POST /api/executions/{execution_id}/cancel")
    if "NOTHING_IN_FLIGHT" in codes:
        advice.append(f"take it up again: noetl resume {execution_id}")
    if "ITERATIONS_FAILED" in codes:
        advice.append(f"see what failed: GET /api/executions/{execution_id}/events?event_type=call.error")
    return advice
