"""Rules, retries, jumps, state and result of a pipeline (section 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from noetl.engine import pipeline as module
from noetl.engine.pipeline import Ended, Pipeline, RunTask, TaskOutcome, Wait
from noetl.engine.script import Script
from noetl.kernel.lazy import LazyMapping
from noetl.payloads.tables import TableValue
from noetl.playbook.templates import Host, ResultView
from tests.unit.engine.play import NOW, book

BAD = {"kind": "connection", "code": "X", "message": "not ready", "retryable": True}
RENDERING = {"python": {"code": "code"}, "http": {"url": "strict"}, "shell": {"command": "code"}}


class Run:
    """A pipeline being driven: what was asked, how long it waited, how it ended."""

    def __init__(self, tool: Any, answer: Callable[[RunTask], Any] | None = None, **more: Any) -> None:
        outer = {"execution_id": "77", "ctx": {}, "workload": {}, "step": {}, "iter": {}} | more.pop("outer", {})
        timeout = more.pop("default_timeout", None)
        self.step = book({"step": "s", "tool": tool, **more}).steps["s"]
        self.asked: list[RunTask] = []
        self.waits: list[float] = []
        script = Script(self.step, lambda kind: RENDERING.get(kind, {}), timeout)
        pipeline = Pipeline(script, outer, Host(now=NOW))
        following = pipeline.begin()
        while not isinstance(following, Ended):
            if isinstance(following, Wait):
                self.waits.append(following.seconds)
                following = pipeline.resume()
                continue
            self.asked.append(following)
            said = answer(following) if answer is not None else None
            following = pipeline.outcome(said if isinstance(said, TaskOutcome) else TaskOutcome(result=said))
        self.ended = following

    @property
    def order(self) -> list[str]:
        return [one.task.name for one in self.asked]

    @property
    def result(self) -> Any:
        return self.ended.result

    @property
    def inputs(self) -> list[Any]:
        return [one.input.get("v") for one in self.asked]


def task(name: str, *rules: Any, v: Any = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "kind": "python", "code": "result = 1", **more}
    if v is not None:
        made["input"] = {"v": v}
    if rules:
        made["spec"] = {"policy": {"rules": list(rules)}}
    return made


def when(condition: Any, do: str, **then: Any) -> dict[str, Any]:
    return {"when": condition, "then": {"do": do, **then}}


def otherwise(do: str, **then: Any) -> dict[str, Any]:
    return {"else": {"then": {"do": do, **then}}}


ERROR = "{{ output.status == 'error' }}"


def failing(*names: str, times: int = 10**9) -> Callable[[RunTask], Any]:
    left = dict.fromkeys(names, times)

    def answer(asked: RunTask) -> Any:
        if left.get(asked.task.name, 0) > 0:
            left[asked.task.name] -= 1
            return TaskOutcome(error=BAD)
        return {"from": asked.task.name}

    return answer


class TestDefaults:
    def test_success_continues(self) -> None:
        assert Run([task("a"), task("b")]).order == ["a", "b"]

    def test_error_fails(self) -> None:
        run = Run([task("a"), task("b")], failing("a"))
        assert run.order == ["a"]
        assert (run.ended.error, run.ended.failed_task) == (BAD, "a")

    def test_no_matching_rule_is_as_no_rule(self) -> None:
        rule = when(False, "continue")
        assert Run([task("a", rule), task("b")], failing("a")).order == ["a"]
        assert Run([task("a", rule), task("b")]).order == ["a", "b"]


class TestRules:
    def test_the_first_true_one_is_taken(self) -> None:
        run = Run([task("a", when(False, "fail"), when(True, "break"), otherwise("fail")), task("b")])
        assert (run.order, run.result["status"], run.ended.error) == (["a"], "break", None)

    def test_else_is_always_true(self) -> None:
        assert Run([task("a", when(False, "fail"), otherwise("break")), task("b")]).order == ["a"]

    def test_one_that_raises_is_skipped(self) -> None:
        assert Run([task("a", when("{{ 1 / 0 }}", "fail"), otherwise("continue")), task("b")]).order == ["a", "b"]

    def test_continue_goes_on_also_after_an_error(self) -> None:
        run = Run([task("a", when(ERROR, "continue")), task("b")], failing("a"))
        assert run.order == ["a", "b"]
        assert run.ended.error is None
        assert run.result["results"]["a"] == {"error": BAD, "status": "error"}

    def test_break_ends_successfully_with_the_rest_undone(self) -> None:
        run = Run([task("a", when(True, "break")), task("b")], failing())
        assert (run.result["status"], run.ended.error, run.order) == ("break", None, ["a"])

    def test_break_after_an_error_is_a_success_too(self) -> None:
        run = Run([task("a", when(ERROR, "break")), task("b")], failing("a"))
        assert run.ended.error is None
        assert run.ended.failed_task is None

    def test_fail_takes_the_error_of_the_task(self) -> None:
        assert Run([task("a", otherwise("fail"))], failing("a")).ended.error == BAD

    def test_fail_after_a_success_has_a_code_of_its_own(self) -> None:
        run = Run([task("a", otherwise("fail"))], lambda asked: {"x": 1})
        assert run.ended.error is not None
        assert (run.ended.error["kind"], run.ended.error["code"]) == ("unknown", "POLICY_FAIL")
        assert run.result["status"] == "failed"
        assert run.result["x"] == 1

    def test_rules_see_the_envelope(self) -> None:
        condition = (
            "{{ output.status == 'ok' and output.data.x == 1 and output.response.x == 1 and output.error is none"
            " and output.meta.attempt == 1 and output.meta.duration_ms == 5 and output.http.status == 200"
            " and result.x == 1 and error is none }}"
        )
        said = TaskOutcome(result={"x": 1}, duration_ms=5, extra={"http": {"status": 200}})
        assert Run([task("a", when(condition, "break")), task("b")], lambda asked: said).order == ["a"]

    def test_in_rules_data_is_the_raw_result_even_if_it_has_data(self) -> None:
        rule = when("{{ output.data.data.page == 1 }}", "break")
        assert Run([task("a", rule), task("b")], lambda asked: {"data": {"page": 1}}).order == ["a"]

    def test_a_status_in_the_result_is_not_the_outcome(self) -> None:
        rule = when("{{ output.status == 'ok' }}", "break")
        assert Run([task("a", rule), task("b")], lambda asked: {"status": "failed"}).order == ["a"]

    def test_rules_see_the_input_of_the_task(self) -> None:
        assert Run([task("a", when("{{ v == 3 and input.v == 3 }}", "break"), v=3), task("b")]).order == ["a"]


class TestRetry:
    def test_attempts_count_all_executions(self) -> None:
        run = Run([task("a", when(ERROR, "retry", attempts=4))], failing("a"))
        assert len(run.asked) == 4
        assert [one.attempt for one in run.asked] == [1, 2, 3, 4]
        assert {one.visit for one in run.asked} == {1}
        assert run.ended.error == BAD

    def test_three_by_default(self) -> None:
        assert len(Run([task("a", when(ERROR, "retry"))], failing("a")).asked) == 3

    def test_a_success_goes_on(self) -> None:
        run = Run([task("a", when(ERROR, "retry")), task("b")], failing("a", times=2))
        assert run.order == ["a", "a", "a", "b"]
        assert run.ended.error is None

    @pytest.mark.parametrize(("attempts", "expected"), [("5", 5), ("{{ 2 + 2 }}", 4), ("{{ workload.most }}", 2)])
    def test_attempts_may_be_text_or_a_template(self, attempts: Any, expected: int) -> None:
        run = Run([task("a", when(ERROR, "retry", attempts=attempts))], failing("a"), outer={"workload": {"most": 2}})
        assert len(run.asked) == expected

    @pytest.mark.parametrize("attempts", ["{{ 1 / 0 }}", "{{ 'many' }}", "{{ none }}"])
    def test_attempts_that_are_no_number_are_three(self, attempts: str) -> None:
        run = Run([task("a", when(ERROR, "retry", attempts=attempts))], failing("a"))
        assert len(run.asked) == 3
        assert run.ended.warnings

    @pytest.mark.parametrize(
        ("backoff", "delay", "waits"),
        [
            (None, None, []),
            (None, 0.5, [0.5, 0.5, 0.5]),
            ("none", 2, [2, 2, 2]),
            ("none", None, []),
            ("linear", 0.5, [0.5, 1.0, 1.5]),
            ("linear", None, [1, 2, 3]),
            ("exponential", 0.5, [0.5, 1, 2]),
            ("exponential", None, [1, 2, 4]),
            ("linear", "0.1", [0.1, 0.2, 0.3]),
            ("linear", "{{ 1 + 1 }}", [2, 4, 6]),
            ("linear", 0, []),
        ],
    )
    def test_waits(self, backoff: str | None, delay: Any, waits: list[float]) -> None:
        then = {"attempts": 4} | ({"backoff": backoff} if backoff else {}) | ({} if delay is None else {"delay": delay})
        run = Run([task("a", when(ERROR, "retry", **then))], failing("a"))
        assert len(run.asked) == 4
        assert run.waits == pytest.approx(waits)

    def test_a_very_long_backoff_is_still_a_number(self) -> None:
        run = Run([task("a", when(ERROR, "retry", attempts=2000, backoff="exponential"))], failing("a"))
        assert len(run.waits) == 1999

    def test_of_a_success_is_bounded_too(self) -> None:
        """A task that is polled succeeds each time; its attempts are used up all the same."""
        run = Run([task("a", when("{{ output.data.pending }}", "retry", attempts=4))], lambda asked: {"pending": True})
        assert len(run.asked) == 4
        assert run.ended.error is not None
        assert run.ended.error["code"] == "POLICY_FAIL"

    def test_renders_the_task_again_with_the_attempt(self) -> None:
        run = Run([task("a", when(ERROR, "retry"), v="{{ _attempt }}")], failing("a"))
        assert run.inputs == [1, 2, 3]

    def test_a_rule_may_assign_for_the_next_attempt(self) -> None:
        rule = when(ERROR, "retry", set={"iter.slow": "{{ (iter.slow or 0) + 1 }}"})
        assert Run([task("a", rule, v="{{ iter.slow }}")], failing("a")).inputs == [None, 1, 2]

    def test_the_counter_returns_to_zero_when_the_task_succeeds(self) -> None:
        rounds = [
            task("a", when(ERROR, "retry", attempts=2), v="{{ _attempt }}"),
            task("b", when("{{ (ctx.n or 0) < 2 }}", "jump", to="a", set={"ctx.n": "{{ (ctx.n or 0) + 1 }}"})),
        ]
        calls = iter([True, False] * 3)
        run = Run(rounds, lambda asked: TaskOutcome(error=BAD) if asked.task.name == "a" and next(calls) else {})
        assert run.order == ["a", "a", "b"] * 3
        assert run.inputs == [1, 2, None] * 3
        assert run.ended.error is None

    def test_the_counter_goes_on_when_a_failed_task_is_come_back_to(self) -> None:
        rules = [when("{{ output.status == 'error' and _attempt == 1 }}", "jump", to="a"), when(ERROR, "retry")]
        run = Run([task("a", *rules)], failing("a"))
        assert [one.attempt for one in run.asked] == [1, 2, 3]
        assert [one.visit for one in run.asked] == [1, 2, 2]


class TestJump:
    def test_goes_to_the_task_named(self) -> None:
        once = when("{{ (iter.n or 0) < 1 }}", "jump", to="a", set={"iter.n": 1})
        run = Run([task("a"), task("b"), task("c", once)])
        assert run.order == ["a", "b", "c", "a", "b", "c"]
        assert [one.visit for one in run.asked] == [1, 1, 1, 2, 2, 2]

    def test_may_go_forward(self) -> None:
        assert Run([task("a", otherwise("jump", to="c")), task("b"), task("c")]).order == ["a", "c"]

    @pytest.mark.parametrize("word", ["previous", "prev"])
    def test_previous_is_the_one_before(self, word: str) -> None:
        back = when("{{ not iter.back }}", "jump", to=word, set={"iter.back": True})
        assert Run([task("a"), task("b"), task("c", back)]).order == ["a", "b", "c", "b", "c"]

    def test_works_after_an_error(self) -> None:
        run = Run([task("a"), task("b", when(ERROR, "jump", to="previous"))], failing("b", times=1))
        assert run.order == ["a", "b", "a", "b"]
        assert run.ended.error is None

    def test_has_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_JUMPS", 10)
        run = Run([task("a", otherwise("jump", to="a"))])
        assert len(run.asked) == 11
        assert run.ended.error is not None
        assert run.ended.error["code"] == "JUMP_LIMIT"
        assert run.result["status"] == "failed"

    def test_the_limit_is_a_hundred_thousand(self) -> None:
        assert module.MOST_JUMPS == 100_000

    def test_over_a_task_that_cannot_be_rendered_ends_too(self) -> None:
        """Such a task has its outcome without being run; a hundred thousand of them must not exhaust the stack."""
        broken = {"name": "a", "kind": "http", "url": "{{ nowhere }}",
                  "spec": {"policy": {"rules": [otherwise("jump", to="a")]}}}  # fmt: skip
        run = Run([broken])
        assert run.asked == []
        assert run.ended.error is not None
        assert run.ended.error["code"] == "JUMP_LIMIT"


class TestSet:
    def test_is_applied_when_the_task_is_left_by_continue_jump_or_break(self) -> None:
        assert Run([task("a", set={"ctx.k": 1})]).ended.assigned == {"ctx.k": 1}
        assert Run([task("a", otherwise("break"), set={"ctx.k": 1})]).ended.assigned == {"ctx.k": 1}
        jump = task("a", otherwise("jump", to="c"), set={"ctx.k": 1})
        assert Run([jump, task("c")]).ended.assigned == {"ctx.k": 1}

    def test_never_on_fail(self) -> None:
        assert Run([task("a", set={"ctx.k": 1}), task("b")], failing("a")).ended.assigned == {}
        assert Run([task("a", otherwise("fail"), set={"ctx.k": 1})]).ended.assigned == {}

    def test_never_on_retry(self) -> None:
        counted = task("a", when(ERROR, "retry"), set={"ctx.n": "{{ (ctx.n or 0) + 1 }}"})
        assert Run([counted], failing("a", times=2)).ended.assigned == {"ctx.n": 1}

    def test_a_bare_key_is_a_name_for_later_tasks_only(self) -> None:
        run = Run([task("a", set={"answer": "{{ output.data }}"}), task("b", v="{{ answer }}")], lambda asked: 42)
        assert run.inputs == [None, 42]
        assert run.ended.assigned == {}
        assert run.result["ctx"] == {}

    def test_a_bare_key_of_a_rule_writes_ctx(self) -> None:
        assert Run([task("a", otherwise("continue", set={"k": 1}))]).ended.assigned == {"ctx.k": 1}

    def test_the_prefixes_keep_their_meaning(self) -> None:
        wide = task("a", set={"ctx.a.b": 1, "step.c": 2, "iter.d": 3})
        run = Run([wide, task("b", v=["{{ ctx.a.b }}", "{{ step.c }}", "{{ iter.d }}"])])
        assert run.inputs[1] == [1, 2, 3]
        assert run.ended.assigned == {"ctx.a.b": 1, "step.c": 2}

    def test_what_a_rule_assigns_comes_before_what_the_task_assigns(self) -> None:
        both = task("a", otherwise("continue", set={"ctx.k": 1}), set={"ctx.k": "{{ ctx.k + 1 }}"})
        assert Run([both]).ended.assigned == {"ctx.k": 2}

    def test_values_are_rendered_against_the_state_before(self) -> None:
        swap = task("a", set={"ctx.x": "{{ ctx.y }}", "ctx.y": "{{ ctx.x }}"})
        run = Run([swap], outer={"ctx": {"x": 1, "y": 2}})
        assert run.ended.assigned == {"ctx.x": 2, "ctx.y": 1}

    def test_a_value_that_fails_is_left_out_and_warned_about(self) -> None:
        run = Run([task("a", set={"ctx.bad": "{{ 1 / 0 }}", "ctx.good": 1})])
        assert run.ended.assigned == {"ctx.good": 1}
        assert "ctx.bad" in run.ended.warnings[0]

    def test_exactly_output_is_the_raw_result(self) -> None:
        run = Run([task("a", set={"ctx.r": "{{ output }}", "ctx.s": "{{ output.status }}"})], lambda asked: {"x": 1})
        assert run.ended.assigned == {"ctx.r": {"x": 1}, "ctx.s": "ok"}

    def test_exactly_output_after_a_continued_failure_is_the_error_view(self) -> None:
        run = Run([task("a", when(ERROR, "continue"), set={"ctx.r": "{{output}}"})], failing("a"))
        assert run.ended.assigned == {"ctx.r": {"error": BAD, "status": "error"}}

    def test_assignments_are_kept_whatever_the_outcome(self) -> None:
        run = Run([task("a", set={"ctx.k": 1}), task("b")], failing("b"))
        assert run.ended.error == BAD
        assert run.ended.assigned == {"ctx.k": 1}

    def test_later_writes_swallow_earlier_ones(self) -> None:
        run = Run([task("a", set={"ctx.m.k": 1}), task("b", set={"ctx.m": {}}), task("c", set={"ctx.m.z": 2})])
        assert run.ended.assigned == {"ctx.m": {"z": 2}}

    def test_does_not_reach_outside_until_the_end(self) -> None:
        outside = {"ctx": {"m": {"k": 0}}, "iter": {"m": {"k": 0}}}
        Run([task("a", set={"ctx.m.k": 1, "iter.m.k": 1})], outer=outside)
        assert outside == {"ctx": {"m": {"k": 0}}, "iter": {"m": {"k": 0}}}

    def test_does_not_change_results_that_were_copied(self) -> None:
        run = Run([task("a", set={"ctx.r": "{{ output }}"}), task("b", set={"ctx.r.x": 2})], lambda asked: {"x": 1})
        assert run.result["results"]["a"] == {"x": 1}


class TestNames:
    def test_of_the_pipeline(self) -> None:
        state = ["{{ _task }}", "{{ _attempt }}", "{{ _prev.from }}", "{{ results.a.from }}", "{{ a.from }}"]
        assert Run([task("a"), task("b", v=state)], failing()).inputs[1] == ["b", 1, "a", "a", "a"]

    def test_prev_is_none_at_first_and_skips_failures(self) -> None:
        tasks = [
            task("a", v="{{ _prev is none }}"),
            task("b", when(ERROR, "continue")),
            task("c", v="{{ _prev.from }}"),
        ]
        assert Run(tasks, failing("b")).inputs == [True, None, "a"]

    def test_prev_stays_when_the_same_task_fails_later(self) -> None:
        again = when("{{ not iter.again }}", "jump", to="a", set={"iter.again": True})
        tasks = [task("a", when(ERROR, "continue"), v="{{ _prev.from }}"), task("b", again, v="{{ _prev.from }}")]
        answers = iter([{"from": "a1"}, TaskOutcome(error=BAD), TaskOutcome(error=BAD), {"from": "b2"}])
        tasks[1] = task(
            "b", when("{{ not iter.again }}", "jump", to="a", set={"iter.again": True}), v="{{ _prev.from }}"
        )
        assert Run(tasks, lambda asked: next(answers)).inputs == [None, "a1", "a1", "a1"]

    def test_a_continued_failure_appears_as_its_error_view(self) -> None:
        seen = ["{{ a.status }}", "{{ a.error.code }}", "{{ results.a.error.code }}"]
        tasks = [task("a", when(ERROR, "continue")), task("b", v=seen)]
        assert Run(tasks, failing("a")).inputs[1] == ["error", "X", "X"]

    def test_results_as_a_whole_are_plain(self) -> None:
        run = Run([task("a"), task("b", v="{{ results }}")], failing())
        assert run.inputs[1] == {"a": {"from": "a"}}

    def test_aliases_work_on_tasks(self) -> None:
        run = Run([task("a"), task("b", v=["{{ a.data.from }}", "{{ a.status }}", "{{ _prev.data.from }}"])], failing())
        assert run.inputs[1] == ["a", "ok", "a"]

    def test_a_key_that_an_http_result_lacks_is_looked_up_in_its_body(self) -> None:
        tasks = [{"name": "a", "kind": "http", "url": "http://x"}, task("b", v=["{{ a.id }}", "{{ _prev.id }}"])]
        assert Run(tasks, lambda asked: {"data": {"id": 9}, "status_code": 200}).inputs[1] == [9, 9]

    def test_bare_names_of_ctx_and_workload(self) -> None:
        outer = {"ctx": {"k": "ctx", "both": "ctx"}, "workload": {"w": "workload", "both": "workload"}}
        assert Run([task("a", v=["{{ k }}", "{{ w }}", "{{ both }}"])], outer=outer).inputs == [
            ["ctx", "workload", "ctx"]
        ]

    def test_a_bare_name_of_ctx_follows_what_the_pipeline_writes(self) -> None:
        run = Run([task("a", set={"ctx.k": 2}), task("b", v="{{ k }}")], outer={"ctx": {"k": 1}})
        assert run.inputs[1] == 2

    def test_in_the_order_of_lookup(self) -> None:
        """Each layer hides the next: iteration, own input, names of the pipeline, tasks, steps, ctx, workload."""
        outer = {
            "item": "iterator",
            "loop_index": 3,
            "tall": ResultView("step"),
            "only": ResultView("step"),
            "ctx": dict.fromkeys(("item", "mine", "name", "tall", "only", "c"), "ctx"),
            "workload": dict.fromkeys(("item", "c", "w"), "workload"),
        }
        names = ["item", "mine", "name", "tall", "only", "c", "w"]
        first = task("tall", set={"item": "set", "mine": "set", "name": "set"})
        fields = {"input": {"item": "input", "mine": "input", "execution_id": "input"}}
        shown = "|".join(f"{{{{ {name} }}}}" for name in [*names, "execution_id"])
        second = {**task("b"), **fields, "code": f"x = '{shown}'"}
        run = Run([first, second], lambda asked: "task", outer=outer, loop={"in": [1], "iterator": "item"})
        assert run.asked[1].fields["code"] == "x = 'iterator|input|set|task|step|ctx|workload|77'"

    def test_a_task_result_hides_a_reserved_name(self) -> None:
        run = Run([task("env"), task("b", v="{{ env.from }}")], failing(), outer={"env": {"from": "outside"}})
        assert run.inputs[1] == "env"

    def test_result_in_fields_is_that_of_the_sender_and_in_rules_that_of_the_task(self) -> None:
        rule = when("{{ result.x == 2 }}", "break")
        run = Run([task("a", rule, v="{{ result.x }}"), task("b")], lambda asked: {"x": 2},
                  outer={"result": ResultView({"x": 1})})  # fmt: skip
        assert (run.inputs, run.order) == ([1], ["a"])


class TestInput:
    def test_of_the_step_lies_over_that_of_the_task(self) -> None:
        run = Run([{**task("a"), "input": {"x": 1, "y": 1}}], input={"y": 2, "z": 2})
        assert run.asked[0].input == {"x": 1, "y": 2, "z": 2}

    def test_is_rendered_first_and_seen_by_the_other_fields(self) -> None:
        shell = {
            "name": "a",
            "kind": "shell",
            "input": {"who": "{{ 1 + 1 }}"},
            "command": "echo {{ who }} {{ input.who }}",
        }
        assert Run([shell]).asked[0].fields["command"] == "echo 2 2"

    def test_a_template_that_raises_keeps_its_text_with_a_warning(self) -> None:
        run = Run([task("a", v="{{ 1 / 0 }}")])
        assert run.inputs == ["{{ 1 / 0 }}"]
        assert len(run.ended.warnings) == 1

    def test_warnings_are_bounded(self) -> None:
        more = when("{{ (iter.n or 0) < 300 }}", "jump", to="a", set={"iter.n": "{{ (iter.n or 0) + 1 }}"})
        assert len(Run([task("a", more, v="{{ 1 / 0 }}")]).ended.warnings) == module.MOST_WARNINGS

    def test_an_undefined_name_in_a_strict_field_fails_the_task(self) -> None:
        run = Run([{"name": "a", "kind": "http", "url": "http://x/{{ nowhere }}"}])
        assert run.asked == []
        assert run.ended.error is not None
        assert (run.ended.error["code"], run.ended.error["kind"]) == ("TEMPLATE_UNDEFINED", "schema")

    def test_rules_judge_a_task_that_cannot_be_rendered(self) -> None:
        broken = {"name": "a", "kind": "http", "url": "http://x/{{ nowhere }}",
                  "spec": {"policy": {"rules": [when("{{ output.error.kind == 'schema' }}", "continue")]}}}  # fmt: skip
        assert Run([broken, task("b")]).order == ["b"]

    def test_code_with_braces_of_its_own_is_kept(self) -> None:
        assert Run([task("a", code="x = {{'a': 1}}")]).asked[0].fields["code"] == "x = {{'a': 1}}"

    def test_timeout_is_that_of_the_task_else_the_default(self) -> None:
        own = {**task("a"), "spec": {"timeout": "2s"}}
        shown = {**task("c"), "spec": {"timeout": "{{ 1 + 2 }}"}}
        run = Run([own, task("b"), shown], default_timeout=30)
        assert [one.timeout for one in run.asked] == [2.0, 30.0, 3.0]
        assert Run([task("a")]).asked[0].timeout is None


class TestResult:
    @pytest.mark.parametrize("raw", [{"x": 1}, [1], None, "text"])
    def test_of_a_single_task_is_its_raw_result(self, raw: Any) -> None:
        assert Run({"kind": "python", "code": "x"}, lambda asked: raw).result == raw

    def test_of_a_single_failed_task_is_the_error_view(self) -> None:
        said = TaskOutcome(result={"rows": 1}, error=BAD)
        assert Run({"kind": "python", "code": "x"}, lambda asked: said).result == {
            "rows": 1,
            "error": BAD,
            "status": "error",
        }

    def test_a_single_task_with_rules_or_set_is_a_pipeline(self) -> None:
        tool = {"kind": "python", "code": "x", "set": {"ctx.k": 1}}
        assert Run(tool, lambda asked: 5).result == {
            "status": "ok",
            "_prev": 5,
            "results": {"s_task": 5},
            "ctx": {"k": 1},
            "data": 5,
        }

    def test_promotes_the_fields_of_the_last_finished_task(self) -> None:
        run = Run([task("a"), task("b", set={"ctx.m.k": 1})], lambda asked: {asked.task.name: 1})
        assert run.result == {
            "status": "ok",
            "_prev": {"b": 1},
            "results": {"a": {"a": 1}, "b": {"b": 1}},
            "ctx": {"m": {"k": 1}},
            "b": 1,
        }

    def test_what_is_no_mapping_is_placed_under_data(self) -> None:
        assert Run([task("a"), task("b")], lambda asked: [1]).result["data"] == [1]

    def test_on_a_clash_the_field_of_the_task_wins_but_for_three(self) -> None:
        own = {"status": "mine", "data": 1, "results": 0, "ctx": 0, "_prev": 0, "failed_task": "mine"}
        result = Run([task("a"), task("b")], lambda asked: own).result
        assert (result["status"], result["data"], result["failed_task"]) == ("mine", 1, "mine")
        assert (set(result["results"]), result["ctx"], result["_prev"]) == ({"a", "b"}, {}, own)

    def test_after_a_failure_the_status_is_failed_whatever_the_task_says(self) -> None:
        run = Run([task("a"), task("b")], lambda asked: {} if asked.task.name == "a" else TaskOutcome(
            result={"status": "ok", "code": 7}, error=BAD))  # fmt: skip
        assert run.result == {
            "status": "failed",
            "error": BAD,
            "failed_task": "b",
            "code": 7,
            "_prev": {},
            "results": {"a": {}, "b": {"status": "error", "code": 7, "error": BAD}},
            "ctx": {},
        }

    def test_says_about_the_last_task_what_output_shows(self) -> None:
        said = TaskOutcome(result=1, duration_ms=8, extra={"http": {"status": 200}})
        assert Run([task("a"), task("b")], lambda asked: said).ended.output == {
            "http": {"status": 200},
            "meta": {"attempt": 1, "duration_ms": 8},
        }


def test_the_example_of_a_pipeline_with_retry() -> None:
    rules = [
        when("{{ output.error.retryable }}", "retry", attempts=4, backoff="linear", delay=0.1),
        when(ERROR, "fail"),
        otherwise("continue", set={"ctx.tries": "{{ output.data.tries }}"}),
    ]
    tasks = [
        {**task("call", *rules, set={"answer": "{{ output }}"}), "input": {"v": "{{ _attempt }}"}},
        task("report", v="{{ answer }}"),
    ]

    def answer(asked: RunTask) -> Any:
        if asked.task.name == "report":
            return {"message": f"done after {asked.input['v']['tries']} tries"}
        return TaskOutcome(error=BAD) if asked.input["v"] < 3 else {"tries": asked.input["v"]}

    run = Run(tasks, answer)
    assert run.waits == pytest.approx([0.1, 0.2])
    assert run.result["message"] == "done after 3 tries"
    assert run.ended.assigned == {"ctx.tries": 3}


def test_the_example_of_pagination_by_jump() -> None:
    fetch = {
        "name": "fetch",
        "kind": "http",
        "url": "http://x",
        "params": {"page": "{{ iter.page }}"},
        "spec": {
            "policy": {
                "rules": [
                    when("{{ output.error.retryable }}", "retry", attempts=3, delay=0.5),
                    when(
                        "{{ output.status == 'ok' and output.data.data.more }}",
                        "jump",
                        to="fetch",
                        set={
                            "iter.seen": "{{ iter.seen + output.data.data.events }}",
                            "iter.page": "{{ iter.page + 1 }}",
                        },
                    ),
                    when(
                        "{{ output.status == 'ok' }}",
                        "continue",
                        set={"iter.seen": "{{ iter.seen + output.data.data.events }}"},
                    ),
                ]
            }
        },
    }
    begin = {"name": "begin", "kind": "noop", "set": {"iter.page": 1, "iter.seen": []}}

    def answer(asked: RunTask) -> Any:
        if asked.task.name != "fetch":
            return {"status": "ok"}
        page = asked.fields["params"]["page"]
        return {"data": {"events": [page, page], "more": page < 3}}

    run = Run([begin, fetch, task("count", v="{{ iter.seen }}")], answer)
    assert run.inputs[-1] == [1, 1, 2, 2, 3, 3]
    assert run.order == ["begin", "fetch", "fetch", "fetch", "count"]


# --- Tables ------------------------------------------------------------------------------------------------


class TestTables:
    """A table passes through a pipeline as a table, and is JSON for whoever takes nothing else."""

    TABLE = TableValue(pa.table({"a": [1, 2, 3]}))

    @pytest.fixture(autouse=True)
    def lazy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(RENDERING, "python", {"code": "code", "input": "lazy"})

    def made_by_first(self, asked: RunTask) -> Any:
        return self.TABLE if asked.task.name == "first" else 1

    def test_the_next_task_gets_it_under_every_name(self) -> None:
        for name in ("_prev", "first", "results.first", "mine"):
            first = task("first", set={"mine": "{{ output }}"})
            run = Run([first, task("second", v=f"{{{{ {name} }}}}")], self.made_by_first)
            assert run.inputs[1] is self.TABLE

    def test_other_kinds_get_json(self) -> None:
        second = {"name": "second", "kind": "http", "url": "x", "json": "{{ first }}", "input": {"v": "{{ _prev }}"}}
        run = Run([task("first"), second], self.made_by_first)
        assert run.asked[1].input["v"] == run.asked[1].fields["json"] == self.TABLE.plain()

    def test_rules_and_assignments_read_it(self) -> None:
        rule = {"when": "{{ output.data.row_count == 3 and output.data.rows[0].a == 1 }}", "then": {"do": "break"}}
        first = task("first", rule, set={"ctx.n": "{{ output.data.row_count }}", "ctx.all": "{{ output.data }}"})
        run = Run([first, task("second")], self.made_by_first)
        assert run.order == ["first"]
        assert run.ended.assigned == {"ctx.n": 3, "ctx.all": self.TABLE.plain()}
        assert run.result.plain()["ctx"] == {"n": 3, "all": self.TABLE.plain()}

    def test_the_whole_output_can_be_assigned(self) -> None:
        rule = {"else": {"then": {"do": "continue", "set": {"ctx.out": "{{ output }}"}}}}
        run = Run([task("first", rule)], self.made_by_first)
        assert run.ended.assigned["ctx.out"]["data"] == self.TABLE.plain()

    def test_the_result_of_the_pipeline_holds_it(self) -> None:
        run = Run([task("first"), task("second")], lambda _: self.TABLE)
        assert isinstance(run.result, LazyMapping)
        assert run.result["_prev"] is run.result["results"]["second"] is self.TABLE
        assert run.result["row_count"] == 3
        assert run.result["rows"][2] == {"a": 3}
        assert run.result.plain()["rows"] == self.TABLE.plain()["rows"]

    def test_a_task_alone_gives_it_as_it_is(self) -> None:
        tool = {"kind": "python", "code": "result = 1"}
        assert Run(tool, lambda _: self.TABLE).result is self.TABLE

    def test_code_that_prints_it_is_code_with_json(self) -> None:
        run = Run([task("first"), task("second", code="x = {{ first.rows[0] }}")], self.made_by_first)
        assert run.asked[1].fields["code"] == 'x = {"a": 1}'

    def test_the_input_as_a_whole_is_json_in_other_fields(self) -> None:
        run = Run([task("first"), task("second", v="{{ first }}", libs="{{ input }}")], self.made_by_first)
        assert run.asked[1].fields["libs"] == {"v": self.TABLE.plain()}
