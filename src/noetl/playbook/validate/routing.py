"""`next` and `admit`: where a token goes, and whether it may enter."""

from __future__ import annotations

from typing import Any

from noetl.playbook.document import AdmitRule, Arc, Router
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.assignments import read_set
from noetl.playbook.validate.shapes import Context, choice, ignore_unknown, mapping
from noetl.playbook.validate.templates import check_condition, check_strict
from noetl.playbook.words import ARC_KEYS, BANNED, NO_MATCH, ROUTER_MODES

__all__ = ["read_admit", "read_next"]

_NEXT_SHAPE = "a mapping with arcs"


def read_next(context: Context, node: Node) -> Router:
    """The router of a step."""
    report = context.report
    arcs = node.get("arcs")
    if not node.is_mapping or arcs is None:
        report.add("NTL-205", node, field="next", shape=_NEXT_SHAPE)
        return Router()
    ignore_unknown(report, node, "next", ("spec", "arcs"))
    spec = mapping(report, node.get("spec"), "next.spec")
    ignore_unknown(report, spec, "next.spec", ("mode", "on_no_match"))
    mode = choice(report, spec.get("mode"), "next.spec.mode", ROUTER_MODES, "NTL-209", default="exclusive")
    on_no_match = choice(
        report, spec.get("on_no_match"), "next.spec.on_no_match", NO_MATCH, "NTL-209", default="complete"
    )
    if not arcs.is_list:
        report.add("NTL-205", arcs, field="next.arcs", shape="a list of arcs")
    found = (_read_arc(context, arc, f"next.arcs[{index}]") for index, arc in enumerate(arcs.items))
    return Router(mode=mode, on_no_match=on_no_match, arcs=tuple(arc for arc in found if arc is not None))


def _read_arc(context: Context, node: Node, field: str) -> Arc | None:
    report = context.report
    if not node.is_mapping:
        report.add("NTL-205", node, field=field, shape="a mapping with step")
        return None
    for key in node.entries:
        if key not in ARC_KEYS and key != "cond":
            _ban_arc_key(report, node, key)
    when = check_condition(report, node.get("when"), f"{field}.when")
    if (cond := node.get("cond")) is not None:
        when = _read_cond(report, node, cond, field) if when is None else when
    assigned = read_set(report, node.get("set"), f"{field}.set", "arc")
    target = node.get("step")
    if target is None or not isinstance(target.value, str) or not target.value:
        first = next(iter(context.steps), "end")
        report.add("NTL-206", node if target is None else target, what="arc", field="step", sample=first)
        return None
    if target.value not in context.steps:
        report.unknown("NTL-208", target, target.value, context.steps, what="arc target")
    return Arc(step=target.value, when=when, set=assigned)


def _ban_arc_key(report: Report, node: Node, key: str) -> None:
    instead = {**BANNED, "args": "set"}.get(key)
    if instead is not None:
        report.add("NTL-207", node.key(key), what="arc", key=key, instead=instead)
        return
    from noetl.playbook.problems import closest

    near, _ = closest(key, ARC_KEYS)
    hint = f"did you mean '{near}'?" if near else "an arc has step, when and set"
    report.add("NTL-207", node.key(key), what="arc", key=key, instead=near, hint=hint)


def _read_cond(report: Report, node: Node, cond: Node, field: str) -> object:
    """The older `cond: expr`, which is the inside of a template."""
    text = cond.value
    expr = text if isinstance(text, str) else cond.data()
    report.add("NTL-912", node.key("cond"), expr=expr)
    if not isinstance(text, str):
        return check_condition(report, cond, f"{field}.cond")
    spelt = Node(text if "{{" in text or "{%" in text else f"{{{{ {text.strip()} }}}}", cond.line, cond.column)
    check_strict(report, spelt, f"{field}.cond")
    return spelt.value


# --- Admission --------------------------------------------------------------------------------------------


def read_admit(report: Report, node: Node, step: str) -> tuple[AdmitRule, ...]:
    """The rules that decide whether a token may enter a step."""
    if not node.is_mapping:
        _malformed(report, node, step, "it must be a mapping")
        return ()
    for key in node.entries:
        if key not in ("mode", "rules"):
            _malformed(report, node.key(key), step, f"key '{key}' is not known")
    if (mode := node.get("mode")) is not None and mode.value != "exclusive":
        _malformed(report, mode, step, "mode must be exclusive")
    listed = node.get("rules")
    if listed is None or not listed.is_list:
        _malformed(report, listed if listed is not None else node, step, "rules must be a list")
        return ()
    rules: list[AdmitRule] = []
    closed = False
    for index, item in enumerate(listed.items):
        if closed:
            report.add("NTL-952", item)
        rule, always = _read_admit_rule(report, item, step, index)
        closed = closed or always
        if rule is not None:
            rules.append(rule)
    return tuple(rules)


def _read_admit_rule(report: Report, node: Node, step: str, index: int) -> tuple[AdmitRule | None, bool]:
    """The rule, and whether it always matches."""
    name = f"rules[{index}]"
    if not node.is_mapping:
        _malformed(report, node, step, f"{name} must be a mapping")
        return None, False
    always = "else" in node.entries
    inner = node.get("else") if always else node
    if inner is None or not inner.is_mapping:
        if not always or "then" not in node.entries:
            _malformed(report, inner or node, step, f"{name}.else must hold then")
            return None, always
        inner = node
    if not always and "when" not in node.entries:
        _malformed(report, node, step, f"{name} has neither when nor else")
        return None, False
    when = None if always else check_condition(report, node.get("when"), f"admit.{name}.when")
    allow = _read_allow(report, inner, step, name)
    return (None if allow is None else AdmitRule(when=when, allow=allow)), always


def _read_allow(report: Report, node: Node, step: str, name: str) -> bool | None:
    then = node.get("then")
    if then is None or not then.is_mapping:
        _malformed(report, then if then is not None else node, step, f"{name} has no then with allow")
        return None
    allow = then.get("allow")
    if allow is None or not isinstance(allow.value, bool):
        _malformed(report, allow if allow is not None else then, step, f"{name}.then.allow must be true or false")
        return None
    return allow.value


def _malformed(report: Report, at: Any, step: str, detail: str) -> None:
    report.add("NTL-210", at, step=step, detail=detail)
