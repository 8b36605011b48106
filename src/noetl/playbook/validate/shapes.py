"""Reading one value: the shape it must have, the choices it has, the bounds it keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from noetl.playbook.bounds import Bound, OutOfBounds, is_template
from noetl.playbook.problems import Report, closest
from noetl.playbook.source import Node
from noetl.playbook.validate.templates import check_strict

__all__ = [
    "Context",
    "bounded",
    "choice",
    "columns",
    "entries",
    "ignore_unknown",
    "mapping",
    "optional_text",
    "texts",
    "truth",
    "words",
]


class Context:
    """What the readers of one document share."""

    def __init__(self, report: Report, kinds: Collection[str]) -> None:
        self.report = report
        self.kinds = kinds
        self.steps: dict[str, Node] = {}
        self.workbook: set[str] = set()
        self.moved: dict[str, Node] = {}
        """Values that an older form has elsewhere, by the pointer under which they are read."""


def mapping(report: Report, node: Node | None, field: str, *, code: str = "NTL-102", shape: str = "a mapping") -> Node:
    """The node if it is a mapping, else an empty one at the same place. Nothing at all is no problem."""
    if node is None or node.value is None:
        return Node({}, node.line, node.column) if node is not None else Node({}, 1, 1)
    if not node.is_mapping:
        report.add(code, node, field=field, shape=shape)
        return Node({}, node.line, node.column)
    return node


def entries(report: Report, node: Node | None, field: str, *, shape: str = "a list of mappings") -> Iterator[Node]:
    """The mappings of a list; what is something else is reported."""
    if node is None or node.value is None:
        return
    if not node.is_list:
        report.add("NTL-102", node, field=field, shape=shape)
        return
    for index, item in enumerate(node.items):
        if item.is_mapping:
            yield item
        else:
            report.add("NTL-102", item, field=f"{field}[{index}]", shape="a mapping")


def optional_text(report: Report, node: Node | None, field: str, *, shape: str = "text") -> str | None:
    """Text, or None where there is none."""
    if node is None or node.value is None:
        return None
    if not isinstance(node.value, str) or not node.value.strip():
        report.add("NTL-102", node, field=field, shape=shape)
        return None
    return node.value


def words(report: Report, node: Node | None, field: str) -> str:
    """Free text; numbers and dates that look like something else to YAML are fine."""
    if node is None or node.value is None:
        return ""
    if node.is_mapping or node.is_list:
        report.add("NTL-102", node, field=field, shape="text")
        return ""
    return str(node.value)


def texts(report: Report, node: Node | None, field: str, *, shape: str = "text or a list of texts") -> tuple[str, ...]:
    """A list of texts, which may be written as one text."""
    if node is None or node.value is None:
        return ()
    if isinstance(node.value, str):
        return (node.value,)
    if not node.is_list:
        report.add("NTL-102", node, field=field, shape=shape)
        return ()
    for index, item in enumerate(node.items):
        if not isinstance(item.value, str):
            report.add("NTL-102", item, field=f"{field}[{index}]", shape="text")
    return tuple(item.value for item in node.items if isinstance(item.value, str))


def columns(report: Report, node: Node | None, field: str) -> tuple[str, ...]:
    """Names of columns: a list of texts with at least one, or one text."""
    if node is None or node.value is None:
        return ()
    names = [node] if isinstance(node.value, str) else node.items
    if not names or not all(isinstance(name.value, str) and name.value for name in names):
        report.add("NTL-805", node, field=field, shape="a list of column names")
        return ()
    return tuple(str(name.value) for name in names)


def truth(report: Report, node: Node | None, field: str, *, default: bool = False) -> bool:
    """True or false."""
    if node is None or node.value is None:
        return default
    if not isinstance(node.value, bool):
        report.add("NTL-102", node, field=field, shape="true or false")
        return default
    return node.value


def choice(
    report: Report, node: Node | None, field: str, allowed: Sequence[str], code: str, *, default: Any = None
) -> Any:
    """One of a closed list of words."""
    if node is None:
        return default
    if not isinstance(node.value, str) or node.value not in allowed:
        report.add(code, node, field=field, value=node.data() if node.value is not None else "", allowed=tuple(allowed))
        return default
    return node.value


def bounded(
    report: Report, node: Node | None, field: str, bound: Bound, code: str, *, default: Any = None, open_: bool = True
) -> Any:
    """A number within bounds. A template is kept as it is, where the field is open to one, once its syntax holds."""
    if node is None or node.value is None:
        return default
    if open_ and is_template(node.value):
        check_strict(report, node, field)
        return node.value
    try:
        return bound.read(node.data())
    except OutOfBounds:
        report.add(code, node, field=field, value=node.data(), bound=bound.text, sample=bound.sample)
        return default


def ignore_unknown(report: Report, node: Node, what: str, known: Collection[str]) -> None:
    """Warn about keys that nobody will read."""
    for key in node.entries:
        if key not in known:
            near, hint = closest(key, known)
            report.add("NTL-956", node.key(key), what=what, key=key, near=near, hint=hint)
