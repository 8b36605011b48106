"""What there is to draw: steps with what they do, and the ways between them."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from noetl.playbook.document import Arc, Loop, Playbook, Step

__all__ = ["Box", "Graph", "Way", "graph_of", "shorten"]

_LABEL = 34
_LINE = 38
_MOST_KINDS = 4
_HANDLES_FAILURE = re.compile(r"call\.error|step\.failed|\berror\b|'failed'|\"failed\"")

WayKind = Literal["always", "when", "failure", "finally"]


class Box(NamedTuple):
    """A step: its name, lines about it, and what makes it special."""

    name: str
    lines: tuple[str, ...]
    about: str
    is_entry: bool = False
    is_final: bool = False
    is_fork: bool = False
    is_join: bool = False
    is_stage: bool = False
    is_loop: bool = False


class Way(NamedTuple):
    """An arc. `label` is short enough to stand beside it, `full` is what was written."""

    source: str
    target: str
    kind: WayKind
    label: str = ""
    full: str = ""


class Graph(NamedTuple):
    """Everything a drawing shows, in the order of the document."""

    title: str
    boxes: tuple[Box, ...]
    ways: tuple[Way, ...]


def graph_of(playbook: Playbook) -> Graph:
    """The graph of a playbook."""
    joins = _joins(playbook)
    boxes = tuple(_box(playbook, step, step.name in joins) for step in playbook.steps.values())
    ways = [_way(step, arc) for step in playbook.steps.values() if step.router is not None for arc in step.router.arcs]
    final = playbook.final_step
    if final is not None:
        leads_on = {way.source for way in ways if way.target != way.source}
        ways.extend(
            Way(name, final, "finally")
            for name in playbook.steps
            if name not in leads_on and name != final and not playbook.steps[final].router
        )
    return Graph(playbook.path, boxes, tuple(ways))


def shorten(text: str, width: int) -> str:
    """Text on one line, cut where it gets long."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def _box(playbook: Playbook, step: Step, is_join: bool) -> Box:
    router = step.router
    kinds = [task.kind for task in step.tasks]
    shown = " → ".join(kinds[:_MOST_KINDS]) + (f" → +{len(kinds) - _MOST_KINDS}" if len(kinds) > _MOST_KINDS else "")
    lines = [shown]
    if step.loop is not None:
        lines.append(_loop_line(step.loop))
    if step.reduce is not None:
        by = f" by {', '.join(step.reduce.by)}" if step.reduce.by else ""
        lines.append(f"reduce {step.reduce.source}{by}")
    return Box(
        name=step.name,
        lines=tuple(shorten(line, _LINE) for line in lines),
        about=step.desc,
        is_entry=step.name == playbook.entry,
        is_final=step.name == playbook.final_step,
        is_fork=router is not None and router.mode == "inclusive" and len(router.arcs) > 1,
        is_join=is_join,
        is_stage=step.is_data_stage or step.stage_kind is not None,
        is_loop=step.loop is not None,
    )


def _loop_line(loop: Loop) -> str:
    slots = f" ×{loop.max_in_flight}" if str(loop.max_in_flight) != "1" and "{" not in str(loop.max_in_flight) else ""
    if loop.cursor is not None:
        return f"↻ cursor{slots}: {loop.iterator}"
    return f"↻ {loop.mode}{slots}: {loop.iterator} in {_inside(str(loop.items))}"


def _inside(template: str) -> str:
    text = template.strip()
    whole = text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1
    return text[2:-2].strip() if whole else text


def _way(step: Step, arc: Arc) -> Way:
    if arc.when is None:
        return Way(step.name, arc.step, "always")
    text = _inside(str(arc.when).lower() if isinstance(arc.when, bool) else str(arc.when))
    kind: WayKind = "failure" if _HANDLES_FAILURE.search(text) and "none" not in text.lower() else "when"
    return Way(step.name, arc.step, kind, shorten(text, _LABEL), " ".join(text.split()))


# --- Joins ------------------------------------------------------------------------------------------------


def _joins(playbook: Playbook) -> frozenset[str]:
    """Steps at which branches of one fork come together."""
    arcs = {
        name: [arc.step for arc in step.router.arcs if arc.step in playbook.steps] if step.router is not None else []
        for name, step in playbook.steps.items()
    }
    found: set[str] = set()
    for name, step in playbook.steps.items():
        if step.router is None or step.router.mode != "inclusive" or len(set(arcs[name])) < 2:
            continue
        branches = [_reach(arcs, target, name) for target in dict.fromkeys(arcs[name])]
        for candidate in set().union(*branches):
            arrivals = [
                {source for source in branch if candidate in arcs[source]} | ({name} if candidate == start else set())
                for start, branch in zip(dict.fromkeys(arcs[name]), branches, strict=True)
                if candidate in branch
            ]
            if any(arrival != arrivals[0] for arrival in arrivals):
                found.add(candidate)
    return frozenset(found)


def _reach(arcs: dict[str, list[str]], start: str, origin: str) -> set[str]:
    """Every step that a token at `start` can come to without passing through `origin`."""
    waiting, seen = [start], set()
    while waiting:
        name = waiting.pop()
        if name not in seen and name != origin:
            seen.add(name)
            waiting.extend(arcs[name])
    return seen
