"""`tool`: one task or a pipeline of them."""

from __future__ import annotations

from typing import Any

from noetl.playbook.bounds import DURATION, is_template
from noetl.playbook.document import Task, pointer
from noetl.playbook.kinds import COMMON, KINDS, SQL_KINDS, STRICT_FIELDS
from noetl.playbook.problems import Report, closest
from noetl.playbook.source import Node
from noetl.playbook.validate.assignments import read_set
from noetl.playbook.validate.code import reads_data
from noetl.playbook.validate.older import modernise
from noetl.playbook.validate.rules import read_rules
from noetl.playbook.validate.shapes import Context, bounded, choice, ignore_unknown, mapping, truth
from noetl.playbook.validate.stages import check_spark, check_transfer
from noetl.playbook.validate.storage import read_output
from noetl.playbook.validate.templates import check_loose, check_strict
from noetl.playbook.words import BANNED, SCRIPT_SOURCES, is_readable

__all__ = ["read_task", "read_tool"]

_SHAPE = "a mapping or non-empty list"
_CONNECTION = ("host", "port", "user", "username", "password", "database", "dbname", "dsn", "connection_string")
_SPEC_KEYS = ("policy", "timeout", "side_effecting")
_ARTIFACT_NEEDS: dict[str, list[tuple[str, ...]]] = {
    "get": [("uri", "result_ref")],
    "put": [("uri",), ("data",)],
    "list": [("uri",)],
}


def read_tool(context: Context, node: Node, step: str, at: str, step_input: frozenset[str]) -> tuple[list[Task], bool]:
    """The tasks of a step, and whether they form a pipeline."""
    if node.is_mapping:
        task = read_task(context, node, [f"{step}_task"], 0, at, step_input)
        return [task], bool(task.rules or task.set)
    if not node.items:
        context.report.add("NTL-204", node, field="tool", shape=_SHAPE)
        return [Task(name=f"{step}_task", kind="noop", at=at)], False
    names = _task_names(context.report, node.items)
    tasks = []
    for index, item in enumerate(node.items):
        if item.is_mapping:
            tasks.append(read_task(context, item, names, index, pointer(at, index), step_input))
        else:
            context.report.add("NTL-204", item, field=f"tool[{index}]", shape="a mapping")
    return tasks, True


def _task_names(report: Report, items: list[Node]) -> list[str]:
    names: list[str] = []
    for index, item in enumerate(items):
        name = item.get("name")
        if name is None or name.value in (None, ""):
            names.append(f"task_{index}")
            continue
        if not isinstance(name.value, str):
            report.add("NTL-102", name, field=f"tool[{index}].name", shape="text")
        elif name.value in names:
            report.add("NTL-404", name, what="task", name=name.value)
        elif not is_readable(name.value):
            report.add("NTL-950", name, what="task", name=name.value)
        names.append(str(name.data()))
    return names


def read_task(
    context: Context, node: Node, names: list[str], index: int, at: str, step_input: frozenset[str] = frozenset()
) -> Task:
    """Task `index` of a pipeline whose tasks have these names."""
    report, name = context.report, names[index]
    task = modernise(context, node, at)
    kind = _read_kind(context, task, name)
    if "eval" in task.entries:
        report.add("NTL-403", task.key("eval"), what="tool", key="eval", instead=BANNED["eval"])
    _ban_connection(report, task, kind)
    spec = mapping(report, task.get("spec"), "tool.spec")
    ignore_unknown(report, spec, "tool.spec", _SPEC_KEYS)
    rules = read_rules(report, spec.get("policy"), names, index)
    own_input = mapping(report, task.get("input"), "tool.input")
    check_loose(report, own_input, "tool.input")
    fields = {key: value for key, value in task.entries.items() if key not in COMMON or _is_entry(kind, key)}
    _check_fields(context, task, kind, name, fields)
    if kind == "python":
        _note_data(report, task, own_input.entries.keys() | step_input)
    auth = task.get("auth")
    if auth is not None:
        check_strict(report, auth, "tool.auth")
    effecting = spec.get("side_effecting")
    return Task(
        name=name,
        kind=kind,
        input=own_input.data(),
        auth=auth.data() if auth is not None else None,
        set=read_set(report, task.get("set"), "tool.set", "task"),
        output=read_output(report, task.get("output"), task.get("output_select"),
                           fields=None if kind == "spark" or kind not in KINDS else ()),
        fields={key: value.data() for key, value in fields.items()},
        rules=rules,
        timeout=bounded(report, spec.get("timeout"), "tool.spec.timeout", DURATION, "NTL-212"),
        side_effecting=None if effecting is None else truth(report, effecting, "tool.spec.side_effecting"),
        at=at,
    )  # fmt: skip


def _is_entry(kind: str, key: str) -> bool:
    """The `name` of a workbook task is the entry that it runs."""
    return key == "name" and kind == "workbook"


def _read_kind(context: Context, task: Node, name: str) -> str:
    report, node = context.report, task.get("kind")
    if node is None or node.value in (None, ""):
        report.add("NTL-401", task if node is None else node, what=f"task '{name}'", field="kind", sample="python")
        return ""
    kind = str(node.data())
    if kind == "agent":
        report.add("NTL-930", node)
    elif kind not in KINDS and kind not in context.kinds:
        known = [*(name for name in KINDS if name != "agent"), *context.kinds]
        report.unknown("NTL-402", node, kind, known, what="tool kind")
    return kind


def _ban_connection(report: Report, task: Node, kind: str) -> None:
    """Where a database is and who may enter belongs to a credential, never to a document."""
    sides = [task, *(side for key in ("source", "target") if (side := task.get(key)) is not None and side.is_mapping)]
    for side in sides if kind in (*SQL_KINDS, "transfer") else [task]:
        for key in side.entries:
            plain = kind in ("postgres", "snowflake") and key in _CONNECTION
            if key.startswith("db_") or plain:
                report.add("NTL-502", side.key(key), what=f"{kind or 'tool'} task", key=key,
                           instead="a credential in auth")  # fmt: skip


# --- Fields of a kind -------------------------------------------------------------------------------------


def _check_fields(context: Context, task: Node, kind: str, name: str, fields: dict[str, Node]) -> None:
    report, known = context.report, KINDS.get(kind)
    strict = STRICT_FIELDS.get(kind, ())
    for key, value in fields.items():
        if key in strict:
            check_strict(report, value, f"tool.{key}")
        else:
            check_loose(report, value, f"tool.{key}")
    if known is None:
        return
    _note_missing(report, task, kind, name)
    for key in fields:
        if key not in known.fields and key not in COMMON and key not in BANNED:
            near, hint = closest(key, (*known.fields, *COMMON))
            if hint is None:
                report.add("NTL-956", task.key(key), what="tool", key=key, near=near)
    for key in ("timeout", "timeout_seconds"):
        if key in known.fields:
            bounded(report, task.get(key), f"tool.{key}", DURATION, "NTL-212")
    for key in known.truths:
        if (flag := task.get(key)) is not None and not is_template(flag.value):
            truth(report, flag, f"tool.{key}")
    _check_script(report, task.get("script"))
    if kind == "workbook":
        _check_entry(context, task)
    elif kind == "spark":
        check_spark(report, task, name)
    elif kind == "transfer":
        check_transfer(report, task, name)


def _note_missing(report: Report, task: Node, kind: str, name: str) -> None:
    needs = list(KINDS[kind].needs)
    given = dict(task.entries)
    if kind == "artifact":
        inner = task.get("input")
        given.update(inner.entries if inner is not None else {})
        action = given["action"].value if "action" in given else None
        needs += _ARTIFACT_NEEDS.get(str(action), [])
    for options in needs:
        if not any(key in given and given[key].value not in (None, "", [], {}) for key in options):
            report.add("NTL-951", task, kind=kind, task=name, field=options[0])


def _check_script(report: Report, node: Node | None) -> None:
    if node is None or node.value is None:
        return
    script = mapping(report, node, "script")
    source = mapping(report, script.get("source"), "script.source")
    choice(report, source.get("type"), "script.source.type", SCRIPT_SOURCES, "NTL-504")


def _check_entry(context: Context, task: Node) -> None:
    entry = task.get("name")
    if entry is not None and entry.value not in (None, "") and str(entry.data()) not in context.workbook:
        context.report.unknown("NTL-503", entry, str(entry.data()), sorted(context.workbook), what="workbook entry")


def _note_data(report: Report, task: Node, given: Any) -> None:
    code, libs = task.get("code"), task.get("libs")
    bound = given | (libs.entries.keys() if libs is not None else set())
    if code is not None and isinstance(code.value, str) and "data" not in bound and reads_data(code.value):
        report.add("NTL-931", code)
