"""Syntax of templates, checked while somebody is still looking at them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from noetl.playbook.bounds import is_template
from noetl.playbook.problems import Report
from noetl.playbook.source import Node

__all__ = ["check_condition", "check_loose", "check_strict", "note_old_names"]

_LINE = re.compile(r" at line (\d+)$")
_OLD_OUTPUT = re.compile(r"\boutput\s*(?:\.\s*response\b|\[\s*(['\"])response\1\s*\])")


def check_strict(report: Report, node: Node, field: str) -> None:
    """Templates that decide something or leave the system: one that cannot be parsed is an error."""
    for name, leaf in _leaves(node, field):
        if detail := _syntax(leaf):
            report.add("NTL-501", leaf, field=name, detail=detail)
        else:
            note_old_names(report, leaf)


def check_loose(report: Report, node: Node, field: str) -> None:
    """Templates that fall back to their text: one that cannot be parsed is worth a warning."""
    for name, leaf in _leaves(node, field):
        if _syntax(leaf):
            report.add("NTL-954", leaf, field=name)
        else:
            note_old_names(report, leaf)


def check_condition(report: Report, node: Node | None, field: str) -> object:
    """The value of a `when`. None if there is none; what cannot be a condition is reported."""
    if node is None:
        return None
    if node.value is None or node.is_mapping or node.is_list:
        report.add("NTL-102", node, field=field, shape='a condition such as "{{ output.data.ready }}"')
        return None
    check_strict(report, node, field)
    return node.value


def note_old_names(report: Report, node: Node) -> None:
    """Warn about the older names of a result."""
    text = node.value
    if not isinstance(text, str) or "response" not in text:
        return
    if _OLD_OUTPUT.search(text):
        report.add("NTL-914", node, name="output.response")
    from noetl.playbook.templates import names

    if "response" in names(text):
        report.add("NTL-914", node, name="response")


def _leaves(node: Node, field: str) -> Iterator[tuple[str, Node]]:
    """Every template below a node, with the name of the field it stands in."""
    waiting = [(field, node)]
    while waiting:
        name, at = waiting.pop()
        if is_template(at.value):
            yield name, at
        elif at.is_mapping:
            waiting.extend((f"{name}.{key}", child) for key, child in at.entries.items())
        elif at.is_list:
            waiting.extend((f"{name}[{index}]", child) for index, child in enumerate(at.items))


def _syntax(node: Node) -> str | None:
    """What is wrong with a template, with lines of the file in place of lines of the text."""
    from noetl.playbook.templates import check

    text = str(node.value)
    detail = check(text)
    if detail is None:
        return None
    if "\n" not in text.strip():
        return _LINE.sub("", detail)
    return _LINE.sub(lambda found: f" on line {node.first + int(found[1]) - 1}", detail)
