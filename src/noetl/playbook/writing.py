"""A document written out again, in today's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.playbook.bounds import FANOUT_ROWS
from noetl.playbook.document import (
    AdmitRule,
    Arc,
    Cursor,
    Executor,
    Frame,
    Loop,
    Metadata,
    Output,
    Placement,
    Playbook,
    Router,
    Rule,
    Step,
    Task,
    WorkbookEntry,
)
from noetl.playbook.scalars import Unusable, read_plain

__all__ = ["dump", "to_dict", "to_yaml"]


def to_dict(playbook: Playbook) -> dict[str, Any]:
    """The playbook as plain data that parses to an equal playbook."""
    return _said(
        apiVersion=playbook.api_version,
        kind="Playbook",
        metadata=_metadata(playbook.metadata),
        executor=_executor(playbook.executor),
        keychain=[
            {"name": entry.name, "kind": entry.kind, **_said(scope=entry.scope if entry.scope != "global" else None,
             auto_renew=entry.auto_renew or None), **entry.fields}
            for entry in playbook.keychain
        ],
        workload=playbook.workload,
        workbook=[_workbook_entry(entry) for entry in playbook.workbook.values()],
        spec=playbook.spec,
        workflow=[_step(step) for step in playbook.steps.values()],
    ) | playbook.extra  # fmt: skip


def to_yaml(playbook: Playbook) -> str:
    """The playbook as YAML text."""
    return dump(to_dict(playbook))


def _said(**fields: Any) -> dict[str, Any]:
    """The fields that say something: neither None nor empty."""
    return {name: value for name, value in fields.items() if value is not None and value not in ({}, [], (), "")}


def _metadata(metadata: Metadata) -> dict[str, Any]:
    fields = msgspec.structs.asdict(metadata)
    extra = fields.pop("extra")
    path = None if metadata.path == metadata.name else metadata.path
    flags = {name: value or None for name, value in fields.items() if isinstance(value, bool)}
    lists = {name: list(value) for name, value in fields.items() if isinstance(value, tuple)}
    return {**_said(**{**fields, "path": path, **flags, **lists}), **extra}


def _executor(executor: Executor) -> dict[str, Any]:
    policy = _said(
        defaults=_said(timeout_s=executor.default_timeout),
        results=_said(reference_first=executor.reference_first or None),
        limits=_said(max_payload_bytes=executor.max_payload_bytes),
    )
    return _said(
        profile=executor.profile if executor.profile != "auto" else None,
        version=executor.version,
        requires=_said(
            tools=list(executor.requires_tools),
            features=list(executor.requires_features),
            labels=executor.requires_labels,
        ),
        spec=_said(
            entry_step=executor.entry_step,
            final_step=executor.final_step,
            no_next_is_error=executor.no_next_is_error or None,
            policy=policy,
            placement=_placement(executor.placement),
            spark=executor.spark,
        ),
    )


def _placement(placement: Placement) -> dict[str, Any]:
    return _said(**msgspec.structs.asdict(placement))


def _workbook_entry(entry: WorkbookEntry) -> dict[str, Any]:
    asserted = _said(expects=list(entry.expects), returns=list(entry.returns))
    return _said(name=entry.name, desc=entry.desc, tool=_task(entry.task), **{"assert": asserted})


def _step(step: Step) -> dict[str, Any]:
    single = len(step.tasks) == 1 and step.tasks[0].at.endswith("/tool")
    tool = _task(step.tasks[0]) if single else [{"name": task.name, **_task(task)} for task in step.tasks]
    policy = _said(admit=_said(rules=[_admit_rule(rule) for rule in step.admit]))
    reduce = step.reduce
    return {
        "step": step.name,
        **_said(
            desc=step.desc,
            input=step.input,
            spec=_said(timeout=step.timeout, placement=_placement(step.placement), policy=policy),
            loop=_loop(step.loop) if step.loop is not None else None,
            reduce=_said(**{"from": reduce.source}, by=list(reduce.by)) if reduce is not None else None,
            tool=tool,
            output=_output(step.output),
            set=step.set,
        ),
        **({"next": _router(step.router)} if step.router is not None else {}),
    }


def _admit_rule(rule: AdmitRule) -> dict[str, Any]:
    then = {"then": {"allow": rule.allow}}
    return {"else": then} if rule.when is None else {"when": rule.when, **then}


def _loop(loop: Loop) -> dict[str, Any]:
    default = "best_effort" if loop.mode == "cursor" else "fail_at_end"
    failure = {"mode": loop.failure} if loop.failure != default else {}
    spec = _said(
        mode=loop.mode,
        max_in_flight=loop.max_in_flight,
        policy=_said(exec=loop.placement, failure=failure),
        frame=_frame(loop),
        engine=loop.engine if loop.engine != "auto" else None,
        partitions=loop.partitions,
        by=list(loop.by),
    )
    source = {"cursor": _cursor(loop.cursor)} if loop.cursor is not None else {"in": loop.items}
    return {**source, "iterator": loop.iterator, "spec": spec}


def _cursor(cursor: Cursor) -> dict[str, Any]:
    options = {**_said(max_iterations=cursor.max_iterations), **cursor.options}
    return _said(kind=cursor.kind, auth=cursor.auth, claim=cursor.claim, options=options)


def _frame(loop: Loop) -> dict[str, Any]:
    default = Frame(max_rows=FANOUT_ROWS) if loop.mode == "fanout" else Frame()
    usual = msgspec.structs.asdict(default)
    return {name: value for name, value in msgspec.structs.asdict(loop.frame).items() if value != usual[name]}


def _task(task: Task) -> dict[str, Any]:
    spec = _said(
        timeout=task.timeout,
        side_effecting=task.side_effecting,
        policy=_said(rules=[_rule(rule) for rule in task.rules]),
    )
    named = {"name": task.fields["name"]} if "name" in task.fields else {}
    fields = {name: value for name, value in task.fields.items() if name != "name"}
    return {
        **named,
        "kind": task.kind,
        **_said(auth=task.auth, input=task.input),
        **fields,
        **_said(spec=spec, set=task.set, output=_output(task.output)),
    }


def _rule(rule: Rule) -> dict[str, Any]:
    then = _said(
        do=rule.do,
        attempts=rule.attempts if rule.attempts != Rule(do="retry").attempts else None,
        backoff=rule.backoff if rule.backoff != "none" else None,
        delay=rule.delay,
        to=rule.to,
        set=rule.set,
    )
    return {"else": {"then": then}} if rule.when is None else {"when": rule.when, "then": then}


def _output(output: Output) -> dict[str, Any]:
    select = None
    if output.select is not None:
        select = [_said(**{"path": one.path, "as": one.name}) for one in output.select]
    said = _said(store=_said(kind=output.store), scope=output.scope, **{"as": output.name})
    exact = {"inline_max_bytes": output.inline_max_bytes, "accumulate": output.accumulate, "select": select}
    return {**said, **{name: value for name, value in exact.items() if value is not None}, **output.fields}


def _router(router: Router) -> dict[str, Any]:
    spec = _said(
        mode=router.mode if router.mode != "exclusive" else None,
        on_no_match=router.on_no_match if router.on_no_match != "complete" else None,
    )
    return {**_said(spec=spec), "arcs": [_arc(arc) for arc in router.arcs]}


def _arc(arc: Arc) -> dict[str, Any]:
    when = {} if arc.when is None else {"when": arc.when}
    return {"step": arc.step, **when, **_said(set=arc.set)}


# --- YAML -------------------------------------------------------------------------------------------------


def dump(document: Mapping[str, Any]) -> str:
    """Data as YAML text that our reader, whose plain words differ from other readers', gives back unchanged."""
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]  # the base is chosen when it runs
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=_style(value))

    Dumper.add_representer(str, text)
    Dumper.add_representer(tuple, lambda dumper, value: dumper.represent_list(list(value)))
    written: str = yaml.dump(dict(document), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return written


def _style(value: str) -> str | None:
    if "\n" in value:
        return "|"
    try:
        return None if read_plain(value) == value and isinstance(read_plain(value), str) else "'"
    except Unusable:
        return "'"
