"""`set`: which keys may be written where."""

from __future__ import annotations

from typing import Any, Literal

from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.shapes import mapping
from noetl.playbook.validate.templates import check_strict

__all__ = ["read_set"]

_SCOPES = ("ctx", "iter", "step")


def read_set(
    report: Report, node: Node | None, field: str, where: Literal["step", "arc", "rule", "task"]
) -> dict[str, Any]:
    """The assignments of a `set`, with a bare key spelt out where it means `ctx`."""
    block = mapping(report, node, field)
    assigned: dict[str, Any] = {}
    for key, value in block.entries.items():
        check_strict(report, value, f"{field}.{key}")
        at = block.key(key)
        scope, dot, rest = key.partition(".")
        if dot:
            if scope not in _SCOPES or not all(rest.split(".")) or (scope == "iter" and where in ("step", "arc")):
                report.add("NTL-211", at, key=key)
                continue
            assigned[key] = value.data()
        elif not key or key in _SCOPES:
            report.add("NTL-211", at, key=key)
        elif where == "task":
            if not key.isidentifier():
                report.add("NTL-950", at, what="name", name=key)
            assigned[key] = value.data()
        else:
            report.add("NTL-913", at, key=key)
            assigned[f"ctx.{key}"] = value.data()
    return assigned
