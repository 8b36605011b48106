"""`workflow`: the steps, and how they hang together."""

from __future__ import annotations

from typing import Any

from noetl.playbook.bounds import DURATION
from noetl.playbook.document import AdmitRule, Placement, Step, Task, pointer
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.assignments import read_set
from noetl.playbook.validate.loops import read_loop
from noetl.playbook.validate.placement import read_placement
from noetl.playbook.validate.routing import read_admit, read_next
from noetl.playbook.validate.shapes import Context, bounded, ignore_unknown, mapping, words
from noetl.playbook.validate.stages import check_reduce_source, read_reduce
from noetl.playbook.validate.storage import read_output
from noetl.playbook.validate.tasks import read_tool
from noetl.playbook.validate.templates import check_loose
from noetl.playbook.words import BANNED, STEP_KEYS, is_readable

__all__ = ["note_unreachable", "read_steps"]

_UNSURE = ("NTL-111", "NTL-201", "NTL-202", "NTL-205", "NTL-206", "NTL-208")
"""Mistakes after which nobody can say which steps are reached."""


def read_steps(context: Context, root: Node) -> dict[str, Step]:
    """The steps of a playbook in their order."""
    report, workflow = context.report, root.get("workflow")
    if workflow is None or workflow.value in (None, []):
        report.add("NTL-107", root if workflow is None else workflow)
        return {}
    if not workflow.is_list:
        report.add("NTL-102", workflow, field="workflow", shape="a list of steps")
        return {}
    context.steps = _find_names(report, workflow)
    steps: dict[str, Step] = {}
    for index, node in enumerate(workflow.items):
        if node.is_mapping:
            step = _read_step(context, node, index)
            steps.setdefault(step.name, step)
    for step in steps.values():
        check_reduce_source(context, step, steps)
    return steps


def _find_names(report: Report, workflow: Node) -> dict[str, Node]:
    names: dict[str, Node] = {}
    for index, node in enumerate(workflow.items):
        if not node.is_mapping:
            report.add("NTL-102", node, field=f"workflow[{index}]", shape="a mapping")
            continue
        name = node.get("step")
        if name is None or name.value in (None, ""):
            sample = "start" if index == 0 else f"step_{index + 1}"
            at = node if name is None else name
            report.add("NTL-201", at, what=f"workflow[{index}]", field="step", sample=sample)
        elif not isinstance(name.value, str):
            report.add("NTL-102", name, field="step", shape="text")
        elif name.value in names:
            report.add("NTL-202", name, what="step", name=name.value)
        else:
            names[name.value] = node
            if not is_readable(name.value):
                report.add("NTL-950", name, what="step", name=name.value)
    return names


def _read_step(context: Context, node: Node, index: int) -> Step:
    report, named = context.report, node.get("step")
    name = named.value if named is not None and isinstance(named.value, str) else ""
    at = pointer("workflow", index)
    _check_keys(report, node, name)
    timeout, placement, admit = _read_spec(report, node, name)
    own_input = mapping(report, node.get("input"), "input")
    check_loose(report, own_input, "input")
    loop, reduce, following = node.get("loop"), node.get("reduce"), node.get("next")
    tasks, pipeline = _read_tool(context, node, name, at, frozenset(own_input.entries))
    return Step(
        name=name,
        desc=words(report, node.get("desc"), "desc"),
        input=own_input.data(),
        timeout=timeout,
        placement=placement,
        admit=admit,
        loop=read_loop(report, loop, name) if loop is not None else None,
        reduce=read_reduce(context, reduce, node) if reduce is not None else None,
        tasks=tuple(tasks),
        pipeline=pipeline,
        output=read_output(report, node.get("output")),
        set=read_set(report, node.get("set"), "set", "step"),
        router=read_next(context, following) if following is not None else None,
        at=at,
    )


def _check_keys(report: Report, node: Node, name: str) -> None:
    for key in node.entries:
        if key in BANNED:
            report.add("NTL-203", node.key(key), what=f"step '{name}'", key=key, instead=BANNED[key])
        elif key not in STEP_KEYS:
            report.add("NTL-911", node.key(key), step=name, key=key)


def _read_spec(report: Report, node: Node, name: str) -> tuple[Any, Placement, tuple[AdmitRule, ...]]:
    spec = mapping(report, node.get("spec"), "spec")
    ignore_unknown(report, spec, "spec", ("timeout", "policy", "placement"))
    policy = mapping(report, spec.get("policy"), "spec.policy")
    ignore_unknown(report, policy, "spec.policy of a step", ("admit",))
    admit = policy.get("admit")
    timeout = bounded(report, spec.get("timeout"), "spec.timeout", DURATION, "NTL-212")
    placement = read_placement(report, spec.get("placement"), "spec.placement")
    return timeout, placement, read_admit(report, admit, name) if admit is not None else ()


def _read_tool(context: Context, node: Node, name: str, at: str, step_input: frozenset[str]) -> tuple[list[Task], bool]:
    tool = node.get("tool")
    if tool is None:
        context.report.add("NTL-910", node, step=name)
        return [Task(name=f"{name}_task", kind="noop", at=pointer(at, "tool"))], False
    return read_tool(context, tool, name, pointer(at, "tool"), step_input)


def note_unreachable(context: Context, steps: dict[str, Step], entry: str, final_step: str | None) -> None:
    """Warn about steps that no token can come to."""
    if context.report.has(_UNSURE):
        return
    waiting = [entry, *([final_step] if final_step else [])]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in steps:
            continue
        seen.add(name)
        router = steps[name].router
        waiting.extend(arc.step for arc in (router.arcs if router is not None else ()))
    for name, node in context.steps.items():
        if name not in seen:
            named = node.get("step")
            context.report.add("NTL-955", named if named is not None else node, step=name)
