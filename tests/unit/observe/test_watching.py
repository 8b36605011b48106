"""The dashboard and the alerts ask for metrics that there are, by labels that these have."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import pytest
import yaml

from noetl.observe.metrics import INSTRUMENTS

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "noetl.json").read_text(encoding="utf-8"))
GROUPS = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] == "timeseries"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
FROM_PROMETHEUS = {"instance", "job"}
DURATION = re.compile(r"[1-9][0-9]*[smhd]")


class Selected(NamedTuple):
    """What an expression asks for: a metric, the labels that it chooses by, and those that it keeps."""

    metric: str
    chosen: frozenset[str]
    kept: frozenset[str]


def selected(node: Any, kept: frozenset[str] = frozenset()) -> Iterator[Selected]:
    """Everything that an expression asks for."""
    if isinstance(node, promql_parser.VectorSelector):
        yield Selected(node.name or "", frozenset(matcher.name for matcher in node.matchers.matchers), kept)
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from selected(node.vector_selector, kept)
    elif isinstance(node, promql_parser.AggregateExpr):
        labels = node.modifier.labels if node.modifier is not None else []
        yield from selected(node.expr, kept | frozenset(labels))
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from selected(argument, kept)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from selected(node.lhs, kept)
        yield from selected(node.rhs, kept)
    elif isinstance(node, promql_parser.ParenExpr | promql_parser.UnaryExpr):
        yield from selected(node.expr, kept)
    else:
        assert isinstance(node, promql_parser.NumberLiteral), type(node)


def check(expression: str) -> set[str]:
    """The metrics of an expression, all of which exist, with these labels. Raises for one that is no PromQL."""
    found = set()
    for asked in selected(promql_parser.parse(expression.replace("$__rate_interval", "5m"))):
        if asked.metric == "up":
            continue
        name = re.sub("_(bucket|sum|count)$", "", asked.metric)
        instrument = INSTRUMENTS[name]
        assert (name != asked.metric) == (instrument.kind == "histogram"), asked
        own = {*instrument.labels, *FROM_PROMETHEUS, *({"le"} if asked.metric.endswith("_bucket") else ())}
        assert asked.chosen <= own, asked
        assert asked.kept <= own, asked
        found.add(name)
    return found


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_panel_shows_what_there_is(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        check(target["expr"])
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        labels = set().union(*(one.kept for one in selected(parsed(target["expr"]))))
        assert named <= labels, "a legend names what the query has left over"


def parsed(expression: str) -> Any:
    return promql_parser.parse(expression.replace("$__rate_interval", "5m"))


def test_every_metric_is_somewhere_on_the_dashboard() -> None:
    shown = set().union(*(check(target["expr"]) for panel in PANELS for target in panel["targets"]))
    assert shown == set(INSTRUMENTS)


def test_the_dashboard_has_the_shape_that_grafana_reads() -> None:
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= set(DASHBOARD)
    assert "id" not in DASHBOARD, "one with an id cannot be imported"
    panels = DASHBOARD["panels"]
    assert sorted(panel["id"] for panel in panels) == list(range(1, len(panels) + 1))
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}
    assert [one["type"] for one in DASHBOARD["templating"]["list"] if one["name"] == "datasource"] == ["datasource"]
    for panel in PANELS:
        ids = [target["refId"] for target in panel["targets"]]
        assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells


def test_the_dashboard_is_the_one_that_is_generated() -> None:
    script = ROOT / "scripts" / "generate_dashboard.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_can_fire_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    check(rule["expr"])
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert "for" not in rule or DURATION.fullmatch(rule["for"])
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor == rule["alert"].lower()
    assert anchor in [heading.lower() for heading in headings]
    labels = set().union(*(one.kept for one in selected(promql_parser.parse(rule["expr"])))) | FROM_PROMETHEUS
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels


def test_alerts_and_groups_have_names_of_their_own() -> None:
    for names in ([rule["alert"] for rule in RULES], [group["name"] for group in GROUPS]):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "expression",
    ["noetl_made_up_total", 'noetl_commands_total{pool="x"}', "sum by (pool) (noetl_commands_total)",
     "noetl_append_seconds", "noetl_commands_total_sum", "sum by ((noetl_queue_depth)"],
)  # fmt: skip
def test_what_is_wrong_is_found(expression: str) -> None:
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check(expression)
