"""What a command needs of results that are kept elsewhere, fetched before it begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from typing import Any

import msgspec

from noetl.engine.context import names_used, paths_used
from noetl.kernel.event import Json
from noetl.runtime.worker import Work

__all__ = ["Fetch", "with_results"]

Fetch = Callable[[int, str, Json], Awaitable[Any]]
"""The whole result of a step, by the reference to it."""

_SENDER = ("result", "response")
_ABOUT = frozenset({"_ref", "_store", "_preview", "status"})


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
        if everything or _reads_more(paths, (name,), said):
            whole[name] = {**said, "whole": await fetch(work.execution_id, name, said["reference"])}
    found = {**context, "steps": {**context.get("steps", {}), **whole}}
    if "reference" in sender and (everything or _reads_more(paths, _SENDER, sender)):
        step = sender["step"]
        known = whole[step]["whole"] if step in whole else await fetch(work.execution_id, step, sender["reference"])
        found["sender"] = {**sender, "whole": known}
    return msgspec.structs.replace(work, context=found)


def _reads_more(paths: frozenset[tuple[str, ...]], names: tuple[str, ...], said: Json) -> bool:
    """Whether a template reads the whole result, or a field that is not among those kept at hand."""
    value = said.get("value")
    at_hand = _ABOUT | (value.keys() if isinstance(value, dict) else set())
    inner = [tuple(path.split(".")) for path in said["reference"].get("selected", ())]
    return any(path[0] in names and not _is_at_hand(path[1:], at_hand, inner) for path in paths)


def _is_at_hand(path: tuple[str, ...], at_hand: Set[str], inner: list[tuple[str, ...]]) -> bool:
    """Whether a path is answered by what the event has kept; of a field that was selected in part, by that part."""
    if not path or path[0] not in at_hand:
        return False
    parts = [part for part in inner if part[0] == path[0]]
    return not parts or any(path[: len(part)] == part for part in parts)
