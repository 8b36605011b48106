"""Older ways to write a task, turned into today's before anything else reads it."""

from __future__ import annotations

from typing import Any

from noetl.playbook.document import pointer
from noetl.playbook.kinds import KINDS, SQL_KINDS
from noetl.playbook.source import Node
from noetl.playbook.validate.shapes import Context

__all__ = ["modernise"]

_LIFTED = ("code", "input", "url", "endpoint", "method", "params", "headers", "command", "auth")
_RETRIED = ("http", "playbook", "workbook")
_RETRYABLE = "output.error.retryable"


def modernise(context: Context, node: Node, at: str) -> Node:
    """The task as it would be written today. The original is not changed; aliases may share it."""
    task = _copy(node)
    kind = task.get("kind")
    name = kind.value if kind is not None else None
    _lift_spec(context, task, at)
    if name != "container":
        _merge_input(context, task, "args", "NTL-924", at)
    if name == "playbook":
        _merge_input(context, task, "payload", "NTL-926", at)
    if name in SQL_KINDS and "credential" in task.entries:
        context.report.add("NTL-925", task.key("credential"))
        _move(context, task, "credential", "auth", at)
    for key in ("task", "iterator"):
        if key in task.entries:
            context.report.add("NTL-928", task.key(key), key=key)
            del task.entries[key]
    if name == "transfer":
        _move_mapping(context, task, at)
    if name == "container":
        _lift_runtime(context, task, at)
    if name in _RETRIED and "retry" in task.entries:
        _retry_rule(context, task, at)
    return task


def _copy(node: Node) -> Node:
    copy = Node(dict(node.entries), node.line, node.column)
    copy.keys = dict(node.keys)
    return copy


def _put(context: Context, task: Node, key: str, value: Node, at: str) -> None:
    task.entries[key] = value
    context.moved[pointer(at, key)] = value


def _move(context: Context, task: Node, old: str, new: str, at: str) -> None:
    value = task.entries.pop(old)
    if new not in task.entries:
        _put(context, task, new, value, at)
        task.keys[new] = task.key(old)


def _lift_spec(context: Context, task: Node, at: str) -> None:
    spec = task.get("spec")
    if spec is None or not any(key in spec.entries for key in _LIFTED):
        return
    rest = _copy(spec)
    for key in _LIFTED:
        if key in rest.entries:
            context.report.add("NTL-923", spec.key(key), key=key)
            value = rest.entries.pop(key)
            if key not in task.entries:
                _put(context, task, key, value, at)
                task.keys[key] = spec.key(key)
    task.entries["spec"] = rest


def _merge_input(context: Context, task: Node, old: str, code: str, at: str) -> None:
    """An older key that fills the input, below what `input` itself says."""
    if old not in task.entries:
        return
    context.report.add(code, task.key(old))
    below, own = task.entries.pop(old), task.get("input")
    if own is None or own.value is None:
        _put(context, task, "input", below, at)
    elif below.is_mapping and own.is_mapping:
        merged = Node({**below.entries, **own.entries}, own.line, own.column)
        merged.keys = {**below.keys, **own.keys}
        _put(context, task, "input", merged, at)
        for key, value in below.entries.items():
            context.moved.setdefault(pointer(at, "input", key), value)


def _move_mapping(context: Context, task: Node, at: str) -> None:
    if "mapping" not in task.entries:
        return
    context.report.add("NTL-929", task.key("mapping"), key="mapping", place="target")
    value, target = task.entries.pop("mapping"), task.get("target")
    if target is not None and target.is_mapping and "mapping" not in target.entries:
        extended = _copy(target)
        extended.entries["mapping"] = value
        context.moved[pointer(at, "target", "mapping")] = value
        task.entries["target"] = extended


def _lift_runtime(context: Context, task: Node, at: str) -> None:
    runtime = task.get("runtime")
    if runtime is None or not runtime.is_mapping:
        return
    rest = _copy(runtime)
    for key in KINDS["container"].fields:
        if key in rest.entries:
            context.report.add("NTL-929", runtime.key(key), key=key, place="tool")
            value = rest.entries.pop(key)
            if key not in task.entries:
                _put(context, task, key, value, at)
                task.keys[key] = runtime.key(key)
    if rest.entries:
        task.entries["runtime"] = rest
    else:
        del task.entries["runtime"]


# --- retry ------------------------------------------------------------------------------------------------


def _retry_rule(context: Context, task: Node, at: str) -> None:
    """`retry` as the one rule it stands for, unless the task has rules of its own."""
    context.report.add("NTL-927", task.key("retry"))
    retry = task.entries.pop("retry")
    spec = task.get("spec")
    if (spec is not None and "policy" in spec.entries) or retry.value in (None, False):
        return
    then: dict[str, Node] = {"do": _at(retry, "retry")}
    for old, new in (("max_attempts", "attempts"), ("backoff", "backoff"), ("backoff_seconds", "delay")):
        if (value := retry.get(old)) is not None:
            seconds = old == "backoff" and isinstance(value.value, int | float)
            then["delay" if seconds else new] = value
    rule = _at(retry, {"when": _at(retry, f"{{{{ {_condition(retry)} }}}}"), "then": _at(retry, then)})
    policy = _at(retry, {"rules": _at(retry, [rule])})
    extended = _copy(spec) if spec is not None else _at(retry, {})
    extended.entries["policy"] = policy
    task.entries["spec"] = extended
    context.moved[pointer(at, "spec", "policy", "rules", 0)] = retry


def _condition(retry: Node) -> str:
    tests = []
    if kinds := _literals(retry.get("retry_on"), str):
        tests.append(f"output.error.kind in {kinds}")
    if codes := _literals(retry.get("retry_on_status"), int):
        tests.append(f"output.error.status in {codes}")
    return f"output.status == 'error' and ({' or '.join(tests) or _RETRYABLE})"


def _literals(node: Node | None, kind: type) -> list[Any]:
    if node is None:
        return []
    items = node.items if node.is_list else [node]
    return [item.value for item in items if isinstance(item.value, kind)]


def _at(place: Node, value: Any) -> Node:
    return Node(value, place.line, place.column)
