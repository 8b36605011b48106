"""What a command needs of results that are kept elsewhere, fetched before it begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from noetl.engine.context import names_used, paths_used
from noetl.engine.outcome import failure
from noetl.engine.reads import reads_more
from noetl.kernel.event import Json
from noetl.runtime.worker import Work

__all__ = ["Fetch", "missing", "with_results"]

Fetch = Callable[[int, str, Json], Awaitable[Any]]
"""The whole result of a step, by the reference to it."""

_SENDER = ("result", "response")


async def with_results(work: Work, fetch: Fetch) -> Work:
    """The command with the whole of each result of which it reads more than its event has kept."""
    context = work.context
    steps = {name: said for name, said in context.get("steps", {}).items() if "reference" in said}
    sender = context.get("sender", {})
    if not steps and "reference" not in sender:
        return work
    paths = paths_used(work.playbook, work.step)
    everything = "context" in names_used(work.playbook, work.step)
    whole: Json = {}
    for name, said in steps.items():
        if everything or reads_more(paths, (name,), said.get("value"), said["reference"]):
            whole[name] = {**said, "whole": await fetch(work.execution_id, name, said["reference"])}
    found = {**context, "steps": {**context.get("steps", {}), **whole}}
    if "reference" in sender and (everything or reads_more(paths, _SENDER, sender.get("value"), sender["reference"])):
        step = sender["step"]
        known = whole[step]["whole"] if step in whole else await fetch(work.execution_id, step, sender["reference"])
        found["sender"] = {**sender, "whole": known}
    return msgspec.structs.replace(work, context=found)


def missing(problem: Exception) -> Json:
    """The error of a command that refers to what cannot be had."""
    return failure("REFERENCE_NOT_AVAILABLE", str(problem), kind="missing_reference", retryable=True)
