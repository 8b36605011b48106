"""What a worker says of a pipeline that has ended or waits, no longer than an event should be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from noetl.engine.decide import Report, Suspension
from noetl.engine.outcome import error_view
from noetl.engine.pipeline import Ended
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.runtime.workbook import unmet

if TYPE_CHECKING:
    from noetl.runtime.worker import Work

__all__ = ["reported"]

_MOST_MESSAGE = 4096
_MOST_OUTPUT = 16 * 1024


def reported(work: Work, ended: Ended | Suspension, end: float | None) -> Report | Suspension:
    """What is said of a pipeline; of one that waits also what it has left of its time, which is over at `end`."""
    if not isinstance(ended, Suspension):
        return _report(work, ended)
    left = None if end is None else max(0.0, end - asyncio.get_running_loop().time())
    return msgspec.structs.replace(ended, call={**ended.call, "left": left})


def _report(work: Work, ended: Ended) -> Report:
    result, error = ended.result, ended.error
    if error is not None:
        error = _bounded(error)
        if not work.step.pipeline:
            result = error_view(result, error)
    detail: Json = {"output": _bounded_output(ended.output)}
    if warnings := [*ended.warnings, *unmet(work.playbook, work.step, ended)]:
        detail["warnings"] = warnings
    return Report(command_id=work.command_id, result=result, error=error, set=ended.assigned, detail=detail)


def _bounded(error: Json) -> Json:
    """An error is read by folds, so it stands in the event itself, where there is no room for a novel."""
    message = str(error.get("message", ""))
    if len(message) <= _MOST_MESSAGE:
        return error
    return {**error, "message": f"{message[:_MOST_MESSAGE]}... ({len(message)} characters)"}


def _bounded_output(output: Json) -> Json:
    """What the tool says about its call, unless that is longer than an event should be: then the essentials."""
    if len(output) == 1 or len(canonical.encode(output)) <= _MOST_OUTPUT:  # `meta` is always there, and ours
        return output
    return {"meta": output.get("meta", {})}
