"""What is made ready once for all runs of a step, and the names that its runs share."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.pipeline import Pipeline, RunTask, TaskOutcome
from noetl.engine.script import Outside, Script
from noetl.errors import InvalidInput
from noetl.playbook.templates import Host
from tests.unit.engine.play import NOW, book

HOST = Host(now=NOW)
OUTER = {"workload": {"a": 1, "b": 1}, "ctx": {"b": 2}, "step": {}, "iter": {}, "execution_id": "77"}
RENDERING = {"http": {"url": "strict"}, "python": {"code": "code", "libs": "raw", "input": "lazy"}}


def script(tool: Any, default_timeout: Any = None, **more: Any) -> Script:
    step = book({"step": "s", "tool": tool, **more}).steps["s"]
    return Script(step, lambda kind: RENDERING.get(kind, {}), default_timeout)


class TestReadyTasks:
    def test_only_what_may_hold_a_template_is_rendered(self) -> None:
        tool = {"kind": "http", "url": "{{ base }}/x", "method": "GET", "verify": True, "params": {"n": "{{ n }}"}}
        ready = script(tool).task(0)
        assert {name: how for name, _, how in ready.rendered} == {"url": "strict", "params": "lenient"}
        assert ready.fields["method"] == "GET"
        assert not ready.is_literal
        assert ready.is_http

    def test_a_raw_field_is_handed_over_as_it_is_written(self) -> None:
        ready = script({"kind": "python", "code": "result = 1", "libs": {"x": "{{ y }}"}}).task(0)
        assert ready.rendered == ()
        assert ready.fields["libs"] == {"x": "{{ y }}"}
        assert ready.is_literal
        assert ready.keeps_tables

    def test_runs_share_it_and_leave_it_as_it_was(self) -> None:
        shared = script({"kind": "http", "url": "{{ base }}/x"})
        for base in ("a", "b"):
            asked = Pipeline(shared, {"base": base}, HOST).begin()
            assert isinstance(asked, RunTask)
            assert asked.fields["url"] == f"{base}/x"
        assert shared.task(0) is shared.task(0)
        assert shared.task(0).fields["url"] == "{{ base }}/x"


class TestTimeouts:
    @pytest.mark.parametrize(("written", "expected"), [("30s", 30.0), (2, 2.0), ("{{ n }}", 7.0)])
    def test_a_duration_is_read_as_it_is_written(self, written: Any, expected: float) -> None:
        ready = script({"kind": "http", "url": "u"}, default_timeout=written).task(0)
        assert [ready.timeout({"n": 7}, HOST), ready.timeout({"n": 7}, HOST)] == [expected, expected]

    def test_a_template_is_read_each_time(self) -> None:
        ready = script({"kind": "http", "url": "u"}, default_timeout="{{ n }}").task(0)
        assert [ready.timeout({"n": n}, HOST) for n in (1, 2)] == [1.0, 2.0]

    def test_one_that_is_none_is_refused_in_each_attempt(self) -> None:
        ready = script({"kind": "http", "url": "u"}, default_timeout="soon").task(0)
        for _ in range(2):
            with pytest.raises(InvalidInput):
                ready.timeout({}, HOST)


class TestNamesFromOutside:
    def test_ctx_goes_before_the_workload_and_a_row_before_both(self) -> None:
        frame = Outside(OUTER, ("item", "loop"))
        row = frame.with_row({"item": 5, "b": 3, "iter": {"item": 5}, "loop": {"index": 0}})
        assert (frame.names["a"], frame.names["b"]) == (1, 2)
        assert (row.names["a"], row.names["b"], row.names["item"]) == (1, 3, 5)
        assert row.foremost == {"execution_id": "77", "item": 5, "loop": {"index": 0}}
        assert row.iter == {"item": 5}
        assert "item" not in frame.names

    def test_a_row_may_bear_the_name_of_a_scope(self) -> None:
        row = Outside(OUTER, ("ctx",)).with_row({"ctx": {"c": 4}})
        assert row.ctx == row.foremost["ctx"] == {"c": 4}
        assert row.names["b"] == 1

    def test_what_the_pipeline_writes_is_found_behind_the_row(self) -> None:
        row = Outside(OUTER).with_row({"item": 5})
        names = row.names_with({"b": 9, "item": 0}, {"n": 1})
        assert (names["b"], names["item"], names["ctx"], names["step"]) == (9, 5, {"b": 9, "item": 0}, {"n": 1})

    def test_a_pipeline_sees_what_it_has_written_to_step_and_ctx(self) -> None:
        tasks = [
            {"name": "one", "kind": "noop", "set": {"ctx.b": 8, "step.n": 1}},
            {"name": "two", "kind": "http", "url": "{{ b }}{{ ctx.b }}{{ step.n }}{{ item }}"},
        ]
        pipeline = Pipeline(script(tasks), Outside(OUTER).with_row({"item": 5}), HOST)
        pipeline.begin()
        asked = pipeline.outcome(TaskOutcome(result={}))
        assert isinstance(asked, RunTask)
        assert asked.fields["url"] == "8815"
