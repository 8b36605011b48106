"""Which name is found first when the engine evaluates a template (6.1, 6.2, 7.2, 7.4)."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.control import Control, StepState
from noetl.engine.scope import Known, Scope
from noetl.playbook import templates
from tests.unit.engine.play import NOW, Said, arc, book, error, play, step


def ended(value: Any, outcome: str = "ok", **more: Any) -> StepState:
    return StepState(run=1, state="ended", outcome=outcome, result={"status": outcome, "context": value}, **more)


def control(**fields: Any) -> Control:
    return Control(execution_id=77, **fields)


def read(expression: str, scope: Scope) -> Any:
    text = f"{{{{ {expression} }}}}"
    return templates.render(text, scope.names_for(text))


class TestLookup:
    def test_identity_names_are_never_shadowed(self) -> None:
        taken = dict.fromkeys(("execution_id", "job", "catalog_id", "parent_execution_id"), "mine")
        steps = {name: ended("step") for name in taken}
        scope = Scope(control(ctx=taken, workload=taken, steps=steps, catalog_id="5"), Known(now=NOW))
        assert read("[execution_id, catalog_id, parent_execution_id]", scope) == ["77", "5", None]
        assert read("[job.uuid, job.execution_id, job.id]", scope) == ["77", "77", "77"]

    def test_step_results_come_before_ctx_and_ctx_before_workload(self) -> None:
        state = control(workload={"a": "w", "b": "w", "c": "w"}, ctx={"a": "c", "b": "c"}, steps={"a": ended("s")})
        assert read("[a, b, c]", Scope(state, Known(now=NOW))) == ["s", "c", "w"]

    def test_reserved_names_come_before_step_results(self) -> None:
        names = ("output", "event", "result", "response", "error", "step", "ctx", "workload", "env")
        state = control(steps={name: ended("step") for name in names} | {"a": ended({"x": 1})})
        scope = Scope(state, Known(now=NOW), ended="a")
        for name in names:
            assert read(name, scope) != "step"

    def test_the_long_forms_always_work(self) -> None:
        state = control(workload={"k": "w"}, ctx={"k": "c"}, steps={"k": ended("s")})
        assert read("[workload.k, ctx.k]", Scope(state, Known(now=NOW))) == ["w", "c"]

    def test_a_step_that_has_not_run_or_is_running_is_undefined(self) -> None:
        scope = Scope(control(steps={"b": StepState(run=1)}), Known(now=NOW))
        assert read("[a is defined, b is defined]", scope) == [False, False]

    def test_a_step_about_to_run_again_is_undefined(self) -> None:
        scope = Scope(control(steps={"a": ended(1)}, ctx={"a": "c"}), Known(now=NOW), entering="a")
        assert read("a", scope) == "c"

    def test_only_what_a_template_uses_is_put_together(self) -> None:
        scope = Scope(control(ctx={"a": 1, "b": 2}), Known(now=NOW))
        assert set(scope.names_for({"x": ["{{ a }}", {"y": "{{ ctx.b }}"}], "z": "plain"})) == {"a", "ctx"}

    def test_text_that_is_no_template_uses_no_names(self) -> None:
        assert Scope(control(), Known(now=NOW)).names_for("{{ broken") == {}

    def test_env_holds_what_the_deployment_allows(self) -> None:
        scope = Scope(control(), Known(now=NOW, env={"REGION": "eu"}))
        assert read("[env.REGION, env.HOME is defined]", scope) == ["eu", False]

    def test_the_address_of_the_server_is_undefined_in_local_runs(self) -> None:
        assert read("server_url is defined", Scope(control(), Known(now=NOW))) is False
        assert read("server_url", Scope(control(), Known(now=NOW, server_url="http://x"))) == "http://x"

    def test_the_id_of_the_caller_is_text(self) -> None:
        assert read("parent_execution_id", Scope(control(parent_execution_id=5), Known(now=NOW))) == "5"


class TestResults:
    def test_a_large_one_comes_from_the_shell(self) -> None:
        state = ended({"count": 1})
        state.result["reference"] = {"ref": "r"}
        scope = Scope(control(steps={"a": state}), Known(now=NOW, results={"a": {"count": 1, "rows": [5]}}))
        assert read("a.rows[0]", scope) == 5

    def test_one_that_fits_is_never_taken_from_an_earlier_run(self) -> None:
        scope = Scope(control(steps={"a": ended({"n": 2})}), Known(now=NOW, results={"a": {"n": 1}}))
        assert read("a.n", scope) == 2

    @pytest.mark.parametrize("expression", ["a.f", "a.data.f", "a.result.f", "a.context.f", "a['f']"])
    def test_can_be_read_by_alias(self, expression: str) -> None:
        assert read(expression, Scope(control(steps={"a": ended({"f": 1})}), Known(now=NOW))) == 1

    def test_a_missing_status_is_the_outcome(self) -> None:
        state = control(steps={"a": ended({"x": 1}), "b": ended({"status": "late"}), "c": ended([], "error")})
        assert read("[a.status, b.status, c.status]", Scope(state, Known(now=NOW))) == ["ok", "late", "error"]

    def test_a_key_that_an_http_result_lacks_is_looked_up_in_its_body(self) -> None:
        state = ended({"status_code": 200, "data": {"id": 9}}, kind="http")
        assert read("a.id", Scope(control(steps={"a": state}), Known(now=NOW))) == 9


class TestOutput:
    def seen(self, expression: str, answer: Any) -> Any:
        document = book(step("start", arc("a", True, seen=f"{{{{ {expression} }}}}")), step("a"))
        return play(document, {"start": answer}).ctx["seen"]

    def test_data(self) -> None:
        assert self.seen("output.data", {"data": 5, "x": 1}) == 5
        assert self.seen("output.data.x", {"x": 1}) == 1
        assert self.seen("output.response.x", {"data": 5, "x": 1}) == 1

    @pytest.mark.parametrize(
        ("status", "expected"),
        [("Done", "ok"), ("noop", "ok"), ("FAILURE", "error"), ("failed", "error"), ("odd", "ok"), (5, "ok")],
    )
    def test_status_is_normalised(self, status: Any, expected: str) -> None:
        assert self.seen("output.status", {"status": status}) == expected

    def test_status_of_a_failed_run_is_error(self) -> None:
        failed = Said(result={"status": "ok"}, error={"code": "X", "message": "m"})
        assert self.seen("output.status", failed) == "error"
        assert self.seen("output.error.code", failed) == "X"

    def test_error_exists_on_success(self) -> None:
        assert self.seen("output.error is none and 'error' in output", {}) is True

    def test_ref(self) -> None:
        assert self.seen("output.ref.ref", Said(result={}, reference={"ref": "noetl://x"})) == "noetl://x"

    def test_what_the_last_task_adds(self) -> None:
        more = {"output": {"http": {"status": 201}, "meta": {"attempt": 2, "duration_ms": 5}}}
        assert self.seen("[output.http.status, output.meta.attempt]", Said(result={}, detail=more)) == [201, 2]


class TestSet:
    def test_values_are_rendered_inside_mappings_and_lists_and_keep_their_type(self) -> None:
        document = book(step("start", set={"ctx.v": {"a": ["{{ start.n }}", "n={{ start.n }}", 2]}}))
        assert play(document, {"start": {"n": 1}}).ctx == {"v": {"a": [1, "n=1", 2]}}

    def test_all_are_rendered_against_the_state_before(self) -> None:
        document = book(step("start", set={"ctx.a": "{{ ctx.b }}", "ctx.b": "{{ ctx.a }}"}))
        assert play(document, ctx={"a": 1, "b": 2}).ctx == {"a": 2, "b": 1}

    def test_dots_address_nested_mappings(self) -> None:
        assert play(book(step("start", set={"ctx.a.b.c": 1})), ctx={"a": {"x": 0}}).ctx == {
            "a": {"x": 0, "b": {"c": 1}}
        }

    def test_a_bare_key_writes_ctx(self) -> None:
        document = book(step("start", {"step": "a", "set": {"late": 2}}, set={"early": 1}), step("a"))
        assert play(document).ctx == {"early": 1, "late": 2}

    def test_an_undefined_value_is_none(self) -> None:
        assert play(book(step("start", set={"ctx.a": "{{ nowhere }}"}))).ctx == {"a": None}

    def test_now_is_recorded(self) -> None:
        played = play(book(step("start", set={"ctx.at": "{{ now() }}"})))
        assert played.one("step.exit").payload["set"] == {"ctx.at": NOW}

    def test_the_values_are_recorded_and_not_the_templates(self) -> None:
        document = book(step("start", arc("a", late="{{ 1 + 1 }}"), set={"ctx.early": "{{ 1 }}"}), step("a"))
        assert play(document).one("step.exit", "start").payload["set"] == {"ctx.early": 1, "ctx.late": 2}


class TestNoop:
    def test_gives_ok_or_what_it_is_told(self) -> None:
        assert play(book(step("start", kind="noop"))).result("start") == {"status": "ok"}
        assert play(book(step("start", kind="noop", result={"n": "{{ 1 + 1 }}"}))).result("start") == {"n": 2}

    def test_sees_its_input_bare_and_by_name(self) -> None:
        result = ["{{ a }}", "{{ input.a }}", "{{ b }}", "{{ execution_id }}", "{{ _task }}"]
        document = book(
            step("start", kind="noop", result=result, task={"input": {"a": "{{ k }}", "execution_id": 1}},
                 input={"b": "{{ k + 1 }}"}),
            workload={"k": 1, "a": "shadowed"},
        )  # fmt: skip
        assert play(document).result("start") == [1, 1, 2, "77", "start_task"]

    def test_keeps_the_text_of_a_template_that_raises_with_a_warning(self) -> None:
        played = play(book(step("start", kind="noop", result={"bad": "{{ 1 / 0 }}", "good": "{{ 1 }}"})))
        assert played.result("start") == {"bad": "{{ 1 / 0 }}", "good": 1}
        assert len(played.one("call.done").payload["warnings"]) == 1

    def test_after_a_failure_reads_the_sender(self) -> None:
        document = book(step("start", arc("a", True)), step("a", kind="noop", result="{{ result.error.message }}"))
        assert play(document, {"start": error("why")}).result("a") == "why"
