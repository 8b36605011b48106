"""What is made ready once for all runs of a step, and the names that its runs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.engine.pipeline import Ended, Pipeline, RunTask, TaskOutcome, Wait
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
        assert [name for name, _ in ready.rendered] == ["url", "params"]
        assert ready.fields["method"] == "GET"
        assert not ready.is_literal
        assert ready.is_http

    def test_a_raw_field_is_handed_over_as_it_is_written(self) -> None:
        ready = script({"kind": "python", "code": "result = 1", "libs": {"x": "{{ y }}"}}).task(0)
        assert ready.rendered == ()
        assert ready.fields["libs"] == {"x": "{{ y }}"}
        assert ready.is_literal

    def test_runs_share_it_and_leave_it_as_it_was(self) -> None:
        shared = script({"kind": "http", "url": "{{ base }}/x"})
        for base in ("a", "b"):
            asked = Pipeline(shared, {"base": base}, HOST).begin()
            assert isinstance(asked, RunTask)
            assert asked.fields["url"] == f"{base}/x"
        assert shared.task(0) is shared.task(0)
        assert shared.task(0).fields["url"] == "{{ base }}/x"


class TestRulesOfSuccess:
    FAILED: ClassVar[str] = "{{ output.status == 'error' and output.error.retryable }}"

    @staticmethod
    def looked_at(tool: dict[str, Any], *whens: str) -> list[str]:
        rules = [{"when": when, "then": {"do": "break"}} for when in whens]
        tool = {"name": "one", "kind": "http", "url": "u", "spec": {"policy": {"rules": rules}}, **tool}
        return [str(rule.when) for rule in script([tool]).task(0).rules_of_success]

    def test_a_rule_for_failures_is_not_looked_at(self) -> None:
        assert self.looked_at({}, self.FAILED, "{{ output.status == 'error' }}") == []

    @pytest.mark.parametrize(
        "when",
        [
            "{{ output.status == 'ok' }}", "{{ output.status != 'error' }}", "{{ not output.status == 'error' }}",
            "{{ output.status == 'error' or output.data }}", "{{ output.error.retryable }}", "{{ status == 'error' }}",
            "{{ output.status == 'error' | lower }}", "yes", "{{ output.data and output.status == 'error' }}",
        ],
    )  # fmt: skip
    def test_all_others_are(self, when: str) -> None:
        assert self.looked_at({}, self.FAILED, when) == [when]

    @pytest.mark.parametrize("own", [{"name": "output"}, {"set": {"output": 1}}, {"input": {"output": 1}}])
    def test_all_are_where_the_step_has_an_output_of_its_own(self, own: dict[str, Any]) -> None:
        assert self.looked_at(own, self.FAILED) == [self.FAILED]

    @settings(deadline=None, max_examples=150)
    @given(
        st.lists(
            st.sampled_from(
                [FAILED, "{{ output.status == 'error' }}", "{{ output.data.n == 1 }}", "{{ output.status == 'ok' }}",
                 "{{ output.status == 'error' or n }}", "{{ 1 / 0 }}"]
            ),
            max_size=4,
        ),
        st.lists(st.sampled_from(["continue", "retry", "jump", "break", "fail"]), min_size=4, max_size=4),
        st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=12),
        st.sampled_from([{}, {"set": {"output": {"status": "error"}}}, {"input": {"output": {"status": "error"}}}]),
    )  # fmt: skip
    def test_it_makes_no_difference_which_are_looked_at(
        self, whens: list[str], dos: list[str], answers: list[int | None], own: dict[str, Any]
    ) -> None:
        """None is a failure, a number the result of an attempt."""
        rules = [
            {"when": when, "then": {"do": do, **({"to": "one"} if do == "jump" else {}), "set": {"ctx.at": number}}}
            for number, (when, do) in enumerate(zip(whens, dos, strict=False))
        ]
        one = {"name": "one", "kind": "http", "url": "{{ ctx.at }}", "spec": {"policy": {"rules": rules}}, **own}
        two = {"name": "two", "kind": "http", "url": "{{ one.n }}{{ results.one }}"}
        told = []
        for is_whole in (False, True):
            made = script([one, two])
            if is_whole:
                for place in (0, 1):
                    made.task(place).rules_of_success = made.task(place).task.rules
            told.append(list(driven(Pipeline(made, OUTER, HOST), answers)))
        assert told[0] == told[1]


def driven(pipeline: Pipeline, answers: list[int | None]) -> Iterator[Any]:
    """All that a pipeline asks for, as long as there are answers."""
    following = pipeline.begin()
    for answer in answers:
        yield following
        if isinstance(following, Ended):
            return
        if isinstance(following, Wait):
            following = pipeline.resume()
        elif answer is None:
            error = {"kind": "connection", "code": "X", "message": "", "retryable": True}
            following = pipeline.outcome(TaskOutcome(error=error))
        else:
            following = pipeline.outcome(TaskOutcome(result={"n": answer}))
    yield following


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
        assert (frame.names()["a"], frame.names()["b"]) == (1, 2)
        assert (row.names()["a"], row.names()["b"], row.names()["item"]) == (1, 3, 5)
        assert row.foremost == {"execution_id": "77", "item": 5, "loop": {"index": 0}}
        assert row.iter == {"item": 5}
        assert "item" not in frame.names()

    def test_a_row_may_bear_the_name_of_a_scope(self) -> None:
        row = Outside(OUTER, ("ctx",)).with_row({"ctx": {"c": 4}})
        assert row.ctx == row.foremost["ctx"] == {"c": 4}
        assert row.names()["b"] == 1

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
