"""Numbers go nowhere until somebody listens, and have few labels."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.observe import metrics
from noetl.observe.metrics import INSTRUMENTS
from noetl.observe.prometheus import PrometheusRecorder

BOUNDED = {"method", "route", "status", "kind", "outcome", "reason", "tier", "share", "stage_kind", "pool", "state",
           "version", "what", "limit"}  # fmt: skip
CUT = {"noetl_frame_backlog_detail_total": {"tenant_id", "organization_id"}}
"""Labels that would grow without end, of metrics that show only the largest."""
VERBS = {"counter": {"count"}, "histogram": {"observe"}, "gauge": {"shift", "level", "levels"}}
ROOT = Path(__file__).parents[3]


@pytest.fixture
def recorder() -> Iterator[PrometheusRecorder]:
    made = PrometheusRecorder()
    metrics.install(made)
    yield made
    metrics.uninstall()


def lines_of(recorder: PrometheusRecorder) -> list[str]:
    return [line for line in recorder.text().decode().splitlines() if not line.startswith("#")]


def test_without_a_recorder_nothing_happens() -> None:
    assert not metrics.is_installed()
    metrics.count("noetl_executions_started_total")
    metrics.observe("noetl_append_seconds", 0.1)
    metrics.shift("noetl_queue_depth", 1)


def test_each_verb_reaches_its_instrument(recorder: PrometheusRecorder) -> None:
    metrics.count("noetl_commands_total", "python", "ok")
    metrics.count("noetl_commands_total", "python", "ok", amount=2)
    metrics.observe("noetl_append_events", 7)
    metrics.shift("noetl_queue_depth", 3)
    metrics.shift("noetl_queue_depth", -1)
    lines = lines_of(recorder)
    assert 'noetl_commands_total{kind="python",outcome="ok"} 3.0' in lines
    assert "noetl_append_events_sum 7.0" in lines
    assert 'noetl_append_events_bucket{le="10.0"} 1.0' in lines
    assert "noetl_queue_depth 2.0" in lines


def test_every_instrument_is_ours_and_its_labels_are_bounded() -> None:
    for name, instrument in INSTRUMENTS.items():
        assert name.startswith("noetl_")
        assert instrument.help.endswith(".")
        labels = set(instrument.labels) - CUT.get(name, set())
        assert labels <= BOUNDED, "a label with an id in it would make a series for each"


def test_a_label_that_is_long_is_cut(recorder: PrometheusRecorder) -> None:
    metrics.count("noetl_auth_refused_total", "x" * 1000)
    assert max(len(line) for line in lines_of(recorder)) < 200


def test_measuring_does_not_import_the_library_behind_it() -> None:
    code = "import sys, noetl.runtime.embedded.runner; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_the_reference_page_lists_every_instrument_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = []
    for name, instrument in INSTRUMENTS.items():
        labels = " ".join(f"`{label}`" for label in instrument.labels)
        rows.append(f"| `{name}` | {instrument.kind} | {labels} | {instrument.help} |")
    assert [line for line in page.splitlines() if line.startswith("| `noetl_")] == rows


def test_every_instrument_is_used_by_its_verb_with_as_many_labels_as_it_has() -> None:
    used: dict[str, set[str]] = {}
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        constants = dict(re.findall(r'^(_\w+) = "(noetl_\w+)"$', text, re.MULTILINE))
        for call in [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and node.args]:
            name = ast.literal_eval(call.args[0]) if isinstance(call.args[0], ast.Constant) else None
            name = constants.get(call.args[0].id) if isinstance(call.args[0], ast.Name) else name
            if isinstance(call.func, ast.Attribute) and isinstance(name, str) and name in INSTRUMENTS:
                used.setdefault(name, set()).add(call.func.attr)
                labels = len(call.args) - (1 if call.func.attr == "count" else 2)
                assert call.func.attr == "levels" or labels == len(INSTRUMENTS[name].labels), f"{file}:{call.lineno}"
    assert set(used) == set(INSTRUMENTS)
    assert [name for name, verbs in used.items() if not verbs <= VERBS[INSTRUMENTS[name].kind]] == []
