"""`spec.policy.rules` of a task: what happens after each attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetl.playbook.bounds import ATTEMPTS, DELAY
from noetl.playbook.document import Rule
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.assignments import read_set
from noetl.playbook.validate.shapes import bounded, choice, ignore_unknown
from noetl.playbook.validate.templates import check_condition
from noetl.playbook.words import ACTIONS, BACKOFFS, BANNED

__all__ = ["read_rules"]

_POLICY_SHAPE = "a mapping with a list rules"
_THEN_KEYS = ("do", "attempts", "backoff", "delay", "to", "set")
_BEFORE = ("previous", "prev")


def read_rules(report: Report, policy: Node | None, tasks: Sequence[str], index: int) -> tuple[Rule, ...]:
    """The rules of task `index` of a pipeline whose tasks have these names."""
    if policy is None:
        return ()
    listed = policy.get("rules")
    if not policy.is_mapping or listed is None or not listed.is_list:
        at = listed if listed is not None and policy.is_mapping else policy
        report.add("NTL-405", at, field="spec.policy", shape=_POLICY_SHAPE)
        return ()
    ignore_unknown(report, policy, "spec.policy", ("rules",))
    rules: list[Rule] = []
    closed = False
    for number, node in enumerate(listed.items):
        if closed:
            report.add("NTL-952", node)
        rule, always = _Reader(report, f"rules[{number}]", tasks, index).read(node)
        closed = closed or always
        if rule is not None:
            rules.append(rule)
    return tuple(rules)


class _Reader:
    """Reads one rule."""

    def __init__(self, report: Report, field: str, tasks: Sequence[str], index: int) -> None:
        self._report = report
        self._field = field
        self._tasks = tasks
        self._index = index

    def read(self, node: Node) -> tuple[Rule | None, bool]:
        """The rule, and whether it always matches."""
        report = self._report
        if not node.is_mapping:
            report.add("NTL-102", node, field=self._field, shape="a mapping")
            return None, False
        if "expr" in node.entries:
            report.add("NTL-406", node.key("expr"), what="rule", key="expr", instead=BANNED["expr"])
        elif not {"when", "else", "then"} & node.entries.keys():
            report.add("NTL-407", node)
            return None, False
        ignore_unknown(report, node, "rule", ("when", "else", "then", "expr"))
        always = "when" not in node.entries and "expr" not in node.entries
        when = check_condition(report, node.get("when"), f"{self._field}.when")
        then = self._then_of(node, always)
        return (None if then is None else self._read_then(then, when)), always

    def _then_of(self, node: Node, always: bool) -> Node | None:
        report = self._report
        otherwise = node.get("else") if always else None
        if otherwise is not None and otherwise.is_mapping:
            if "then" in otherwise.entries:
                return self._mapping(otherwise, "then")
            report.add("NTL-921", node.key("else"))
            return otherwise
        if otherwise is not None and otherwise.value is not None:
            report.add("NTL-102", otherwise, field=f"{self._field}.else", shape="a mapping with then")
            return None
        if always and "then" in node.entries:
            report.add("NTL-922", node.key("else") if "else" in node.entries else node)
        return self._mapping(node, "then")

    def _mapping(self, node: Node, key: str) -> Node | None:
        then = node.get(key)
        if then is None:
            self._report.add("NTL-408", node, what="rule", field="then", sample="{do: continue}")
            return None
        if not then.is_mapping:
            self._report.add("NTL-102", then, field=f"{self._field}.then", shape="a mapping with do")
            return None
        return then

    def _read_then(self, node: Node, when: Any) -> Rule | None:
        report = self._report
        ignore_unknown(report, node, "then", _THEN_KEYS)
        if "do" not in node.entries:
            report.add("NTL-408", node, what="then", field="do", sample="continue")
        do = choice(report, node.get("do"), "do", ACTIONS, "NTL-409", default="fail")
        return Rule(
            when=when,
            do=do,
            attempts=bounded(report, node.get("attempts"), "attempts", ATTEMPTS, "NTL-412", default=3),
            backoff=self._read_backoff(node),
            delay=bounded(report, node.get("delay"), "delay", DELAY, "NTL-414"),
            to=self._read_target(node) if do == "jump" else None,
            set=read_set(report, node.get("set"), f"{self._field}.then.set", "rule"),
        )

    def _read_backoff(self, node: Node) -> Any:
        backoff = node.get("backoff")
        if backoff is not None and backoff.value == "fixed":
            self._report.add("NTL-920", backoff)
            return "none"
        return choice(self._report, backoff, "backoff", BACKOFFS, "NTL-413", default="none")

    def _read_target(self, node: Node) -> str | None:
        target = node.get("to")
        if target is None or target.value in (None, ""):
            sample = self._tasks[0] if self._tasks else "previous"
            self._report.add("NTL-410", node if target is None else target, what="jump", field="to", sample=sample)
            return None
        name = str(target.data())
        if name in _BEFORE and name not in self._tasks:
            if self._index > 0:
                return self._tasks[self._index - 1]
            self._report.add("NTL-411", target, what="jump target", name=name, near="",
                             hint="there is no task before this one")  # fmt: skip
        elif name not in self._tasks:
            self._report.unknown("NTL-411", target, name, [*self._tasks, *_BEFORE], what="jump target")
        return name
