"""What the engine itself reads of results, as far as a document says beforehand.

A result that is kept elsewhere stays there unless a template that the engine evaluates reads more of it than its event
has kept. Templates of tasks are not among them: whoever works on the task fetches what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import msgspec

from noetl.kernel.event import Json
from noetl.playbook import templates
from noetl.playbook.document import Playbook, Step
from noetl.playbook.templates import simple

__all__ = ["Reads", "looked_up", "reads_more"]

Path = tuple[str, ...]

_KNOWN = frozenset({"_ref", "_store", "_preview", "status"})
_SENDER = ("result", "response")
_ABOUT_SENDER = (*_SENDER, "output", "event")


def reads_more(paths: Set[Path], names: tuple[str, ...], value: Any, reference: Json) -> bool:
    """Whether one of the paths leads to more of a result than `value`, which is what its event has kept.

    `names` are what the result is called. A field that was selected in part is at hand where that part is.
    """
    at_hand = _KNOWN | (value.keys() if isinstance(value, dict) else set())
    inner = [tuple(path.split(".")) for path in reference.get("selected", ())]
    return any(path[0] in names and not _is_at_hand(path[1:], at_hand, inner) for path in paths)


def _is_at_hand(path: Path, at_hand: Set[str], inner: list[Path]) -> bool:
    if not path or path[0] not in at_hand:
        return False
    parts = [part for part in inner if part[0] == path[0]]
    return not parts or any(path[: len(part)] == part for part in parts)


def looked_up(value: Any) -> Path | None:
    """The path that a template looks up, where that is all it does: `("load", "rows")` for `{{ load.rows }}`."""
    sentence = simple.parse(value) if isinstance(value, str) else None
    if sentence is None or not sentence.whole:
        return None
    (path,) = sentence.paths
    return path.root, *path.parts


class Reads:
    """What the engine's templates of one document read after the step in question has ended.

    Arcs and assignments of the step itself are evaluated when it ends, with its result still in memory. Others may
    name it at any later time, and an admission rule or a noop may read whatever result has sent the token.
    """

    def __init__(self, playbook: Playbook) -> None:
        self._named: set[Path] = set()
        self._of_sender: set[Path] = set()
        for step in playbook.steps.values():
            self._named.update(_paths([step.set, _routing(step), _loop(step)]))
            if step.reduce is not None:
                self._named.add((step.reduce.source, "ref"))
            of_token = set(_paths([[rule.when for rule in step.admit], *_noop(step)]))
            self._named |= of_token
            self._of_sender |= {path for path in of_token if path[0] in _ABOUT_SENDER}

    def more_than(self, step: str, result: Json) -> bool:
        """Whether anything reads more of a step's result than what is recorded of it, which has a reference."""
        value, reference = result.get("context"), result["reference"]
        if any(path[0] not in _SENDER for path in self._of_sender):
            return True  # `output` and `event` are made of the whole
        return reads_more(self._named, (step,), value, reference) or reads_more(
            self._of_sender, _SENDER, value, reference
        )


def _routing(step: Step) -> list[Any]:
    return [] if step.router is None else [[arc.when, arc.set] for arc in step.router.arcs]


def _loop(step: Step) -> list[Any]:
    loop = step.loop
    if loop is None:
        return [task.fields.get("partitions") for task in step.tasks if step.stage_kind is not None]
    if step.stage_kind is None:
        return [loop.items, loop.max_in_flight]
    claims = [loop.cursor.max_iterations] if loop.cursor is not None else []
    settings = [loop.max_in_flight, loop.partitions, *msgspec.structs.astuple(loop.frame), *claims]
    return settings if _is_passed_on(loop.items) else [loop.items, *settings]


def _is_passed_on(items: Any) -> bool:
    """Whether a fan-out's dataset is a result as it is, which nobody has to read for that; a `ref` has to be read."""
    path = looked_up(items)
    return path is not None and path[-1] != "ref"


def _noop(step: Step) -> list[Any]:
    return [[task.input, step.input, task.fields] for task in step.tasks if task.kind == "noop"]


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, str):
        if templates.is_template(value) and templates.check(value) is None:
            yield from templates.paths(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _paths(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _paths(item)
