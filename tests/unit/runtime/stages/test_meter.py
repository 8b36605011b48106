"""Frames are counted by what happens to them, and each has its time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.observe import metrics
from noetl.observe.prometheus import PrometheusRecorder
from tests.unit.runtime.plant import opened
from tests.unit.runtime.workshop import book, step


@pytest.fixture
def recorder() -> Iterator[PrometheusRecorder]:
    made = PrometheusRecorder()
    metrics.install(made)
    yield made
    metrics.uninstall()


async def test_frames_of_a_stage_are_counted_and_timed(tmp_path: Path, recorder: PrometheusRecorder) -> None:
    loop = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "fanout", "engine": "worker", "frame": {"max_rows": 2}}}
    async with opened(tmp_path) as plant:
        ended = await plant.run(book(step("fan", loop=loop, tool={"kind": "python", "code": "result = {'n': 1}"})))
    assert ended.status == "COMPLETED"
    text = recorder.text().decode()
    assert 'noetl_frames_total{outcome="dispatched"} 2.0' in text
    assert 'noetl_frames_total{outcome="committed"} 2.0' in text
    assert 'noetl_frame_rows_total{outcome="ok"} 3.0' in text
    assert 'noetl_frame_seconds_count{stage_kind="fanout"} 2.0' in text
