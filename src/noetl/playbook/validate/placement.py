"""Where commands want to run: near something, not too far from it, on workers that have what they need."""

from __future__ import annotations

from noetl.playbook.document import Placement
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.shapes import choice, ignore_unknown, mapping, optional_text
from noetl.playbook.words import DISTANCES

__all__ = ["read_labels", "read_placement"]

_KEYS = ("prefer_node", "prefer_zone", "max_distance", "labels")


def read_placement(report: Report, node: Node | None, field: str) -> Placement:
    """A placement, of a step or of all of them."""
    said = mapping(report, node, field)
    ignore_unknown(report, said, field, _KEYS)
    return Placement(
        prefer_node=optional_text(report, said.get("prefer_node"), f"{field}.prefer_node"),
        prefer_zone=optional_text(report, said.get("prefer_zone"), f"{field}.prefer_zone"),
        max_distance=choice(report, said.get("max_distance"), f"{field}.max_distance", DISTANCES, "NTL-110"),
        labels=read_labels(report, said.get("labels"), f"{field}.labels"),
    )


def read_labels(report: Report, node: Node | None, field: str) -> dict[str, str]:
    """Labels and their values, as text: `gpu: 1` is what `--labels gpu=1` says."""
    found: dict[str, str] = {}
    for name, value in mapping(report, node, field).entries.items():
        if isinstance(value.value, bool):
            found[name] = str(value.value).lower()
        elif isinstance(value.value, str | int | float):
            found[name] = str(value.value)
        else:
            report.add("NTL-102", value, field=f"{field}.{name}", shape="text or a number")
    return found
