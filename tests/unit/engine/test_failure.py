"""Failed step runs: what is stored, what handles them, what an unhandled one ends (3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.turn import _MOST_RUNS
from tests.unit.engine.play import Player, Said, arc, book, error, on_error, play, step

SAID = {"kind": "timeout", "code": "TIMEOUT", "message": "late", "retryable": True}


class TestErrorView:
    def test_has_the_fields_of_the_raw_result_the_error_and_the_status(self) -> None:
        played = play(book(step("start")), {"start": Said(result={"rows": 2}, error=SAID)})
        assert played.result("start") == {"rows": 2, "error": SAID, "status": "error"}

    @pytest.mark.parametrize("raw", [None, 5, "text", [1]])
    def test_of_what_is_no_mapping_is_error_and_status(self, raw: Any) -> None:
        played = play(book(step("start")), {"start": Said(result=raw, error=SAID)})
        assert played.result("start") == {"error": SAID, "status": "error"}

    def test_a_pipeline_stores_its_own_result(self) -> None:
        whole = {"status": "failed", "error": SAID, "failed_task": "t", "results": {}, "ctx": {}, "_prev": None}
        played = play(book(step("start")), {"start": Said(result=whole, error=SAID)})
        assert played.result("start") == whole

    def test_can_be_read_by_later_steps(self) -> None:
        document = book(
            step("start", on_error("a")),
            step("a", kind="noop", result=["{{ start.status }}", "{{ start.error.code }}", "{{ start.rows }}"]),
        )
        played = play(document, {"start": Said(result={"rows": 2}, error=SAID)})
        assert played.result("a") == ["error", "TIMEOUT", 2]


class TestSet:
    def test_of_the_step_is_not_applied(self) -> None:
        played = play(book(step("start", on_error("a"), set={"ctx.k": 1}), step("a")), {"start": error()})
        assert played.ctx == {}

    def test_of_the_arc_taken_is(self) -> None:
        why = {"step": "a", "when": "{{ error }}", "set": {"ctx.why": "{{ output.error.message }}"}}
        assert play(book(step("start", why), step("a")), {"start": error("x")}).ctx == {"why": "x"}

    def test_of_a_loop_step_is_always_applied(self) -> None:
        document = book(
            step("start", loop={"in": [1], "iterator": "item"}, set={"ctx.failed": "{{ output.data | length }}"})
        )
        played = play(document, {"start": error()})
        assert (played.status, played.ctx) == ("FAILED", {"failed": 1})

    def test_what_the_pipeline_assigned_is_merged_whatever_its_outcome(self) -> None:
        played = play(book(step("start")), {"start": Said(error=SAID, set={"ctx.page": 4})})
        assert played.ctx == {"page": 4}


class TestHandling:
    def test_an_arc_without_a_condition_never_matches(self) -> None:
        played = play(book(step("start", "a"), step("a")), {"start": error()})
        assert played.status == "FAILED"
        assert "a" not in played.entered

    @pytest.mark.parametrize("when", [True, "{{ true }}", "{{ output.status == 'error' }}", "{{ error }}"])
    def test_an_arc_whose_condition_is_true_handles_it(self, when: Any) -> None:
        played = play(book(step("start", arc("a", when)), step("a")), {"start": error()})
        assert played.status == "COMPLETED"
        assert played.entered == ["start", "a"]
        assert played.end.payload["error"] is None
        assert "unhandled" not in played.one("step.exit", "start").payload

    def test_a_condition_for_success_only_tests_the_status(self) -> None:
        document = book(step("start", arc("a", "{{ output.status == 'ok' }}"), on_error("b")), step("a"), step("b"))
        assert play(document, {"start": error()}).entered == ["start", "b"]
        assert play(document, {}).entered == ["start", "a"]

    def test_inclusive_takes_only_arcs_with_a_condition(self) -> None:
        document = book(step("start", "a", arc("b", True), arc("c", True), mode="inclusive"), *map(step, "abc"))
        assert play(document, {"start": error()}).entered == ["start", "b", "c"]

    def test_a_status_from_normalisation_does_not_fail_the_run(self) -> None:
        document = book(step("start", arc("a", "{{ output.status == 'error' }}"), arc("b")), step("a"), step("b"))
        played = play(document, {"start": {"status": "FAILED"}})
        assert played.entered == ["start", "a"]
        assert play(book(step("start", "b"), step("b")), {"start": {"status": "failed"}}).entered == ["start", "b"]


class TestUnhandled:
    wide = book(
        step("start", "bad", "slow", "a", mode="inclusive", kind="noop"),
        step("bad"),
        step("slow", "after"),
        step("a", "join"),
        step("after", "join"),
        step("join"),
    )

    def test_drops_parked_tokens_and_lets_commands_in_flight_finish(self) -> None:
        player = Player(self.wide, {"bad": error("first")})
        player.start()
        player.finish("a")
        assert player.parked == ["join"]
        player.finish("bad")
        assert player.parked == []
        assert player.status == "RUNNING"
        assert [command.step for command in player.control.commands.values()] == ["slow"]
        player.go_on()
        assert player.status == "FAILED"
        assert player.result("slow") == {}
        assert player.events("slow")[-2:] == ["step.exit", "command.completed"]
        assert "after" not in player.entered
        assert "join" not in player.entered

    def test_the_error_of_the_execution_is_the_first_one(self) -> None:
        document = book(step("start", "a", "b", mode="inclusive", kind="noop"), step("a"), step("b"))
        player = Player(document, {"a": error("one"), "b": error("two")})
        player.start()
        player.finish("b")
        player.finish("a")
        assert player.end.payload["error"]["message"] == "two"
        assert player.control.failed_step == "b"

    def test_it_ends_at_once_when_nothing_is_in_flight(self) -> None:
        played = play(book(step("start")), {"start": error("x")})
        assert played.types[-2:] == ["workflow.failed", "playbook.failed"]
        assert played.end.status == "FAILED"

    def test_a_step_that_ends_later_still_assigns(self) -> None:
        document = book(step("start", "a", "b", mode="inclusive", kind="noop"), step("a"), step("b", set={"ctx.b": 1}))
        player = Player(document, {"a": error()})
        player.start()
        player.finish("a")
        assert player.go_on().ctx == {"b": 1}

    def test_an_error_that_would_have_been_handled_is_not_routed_any_more(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"), step("a"), step("b", on_error("c")), step("c")
        )
        player = Player(document, {"a": error(), "b": error()})
        player.start()
        player.finish("a")
        player.finish("b")
        assert player.status == "FAILED"
        assert "c" not in player.entered

    def test_no_further_iteration_starts(self) -> None:
        loop = {"in": [1, 2, 3, 4], "iterator": "item", "spec": {"mode": "parallel", "max_in_flight": 2}}
        document = book(
            step("start", "bad", "loop", mode="inclusive", kind="noop"), step("bad"), step("loop", loop=loop)
        )
        player = Player(document, {"bad": error()})
        player.start()
        player.finish("bad")
        player.go_on()
        assert player.runs.count("loop") == 2
        assert player.one("loop.done").payload["stats"] == {"total": 2, "success": 2, "failed": 0}
        assert player.status == "FAILED"

    def test_a_token_that_has_not_begun_in_the_same_decision_never_does(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", arc("c", False), kind="noop"),
            step("b"),
            step("c"),
            no_next_is_error=True,
        )
        played = play(document)
        assert played.status == "FAILED"
        assert played.entered == ["start", "a"]
        assert not played.of("command.issued", "b")

    def test_a_join_of_handled_and_unhandled_branches_does_not_run(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"), step("a", "join"), step("b", "join"), step("join")
        )
        for seed in range(5):
            played = play(document, {"a": error()}, seed=seed)
            assert played.status == "FAILED"
            assert "join" not in played.entered


def test_a_row_of_noops_within_the_limit_is_no_failure() -> None:
    count = 700
    document = book(
        step("start", arc("start", f"{{{{ ctx.n < {count} }}}}"), kind="noop", set={"ctx.n": "{{ (ctx.n or 0) + 1 }}"})
    )
    assert count < _MOST_RUNS
    played = play(document)
    assert (played.status, played.ctx) == ("COMPLETED", {"n": count})
