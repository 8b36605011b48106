"""Numbers go nowhere until somebody listens, and have few labels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.observe import metrics
from noetl.observe.metrics import INSTRUMENTS
from noetl.observe.prometheus import PrometheusRecorder

BOUNDED = {"method", "route", "status", "kind", "outcome", "reason", "tier", "share", "what"}


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
        assert set(instrument.labels) <= BOUNDED, "a label with an id in it would make a series for each"


def test_a_label_that_is_long_is_cut(recorder: PrometheusRecorder) -> None:
    metrics.count("noetl_auth_refused_total", "x" * 1000)
    assert max(len(line) for line in lines_of(recorder)) < 200


def test_measuring_does_not_import_the_library_behind_it() -> None:
    code = "import sys, noetl.runtime.embedded.runner; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_the_reference_page_lists_every_instrument() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    for name, instrument in INSTRUMENTS.items():
        labels = " ".join(f"`{label}`" for label in instrument.labels)
        assert f"| `{name}` | {instrument.kind} | {labels} | {instrument.help} |" in page
