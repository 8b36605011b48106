"""The order of events (section 11), late and repeated reports, cancellation (12.1)."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.decide import Report
from noetl.kernel.vocabulary import KNOWN_TYPES
from tests.unit.engine.play import Player, Said, arc, book, error, on_error, play, step

COMMAND = ["command.issued", "command.claimed", "command.started", "step.enter", "call.done", "step.exit"]


class TestOrderOfEvents:
    def test_of_one_step(self) -> None:
        played = play(book(step("start")))
        assert played.types == [
            "playbook.initialized",
            "workflow.initialized",
            *COMMAND,
            "command.completed",
            "workflow.completed",
            "playbook.completed",
        ]

    def test_of_a_noop_that_the_engine_runs_itself_is_the_same(self) -> None:
        assert play(book(step("start", kind="noop"))).types == play(book(step("start"))).types

    def test_of_a_failed_step(self) -> None:
        played = play(book(step("start")), {"start": error()})
        assert played.types[-4:] == ["step.exit", "command.failed", "workflow.failed", "playbook.failed"]
        assert "call.error" in played.types
        assert "call.done" not in played.types

    def test_the_next_command_is_issued_after_the_last_one_is_completed(self) -> None:
        played = play(book(step("start", "b"), step("b")))
        assert played.types[2:-2] == [*COMMAND, "command.completed"] * 2

    def test_of_a_loop(self) -> None:
        document = book(step("start", loop={"in": "{{ items }}", "iterator": "item"}), workload={"items": [1, 2]})
        played = play(document)
        iteration = ["command.issued", "command.claimed", "command.started", "call.done", "command.completed"]
        assert played.events("start") == [
            "loop.opened",
            *iteration[:3],
            "step.enter",
            *iteration[3:],
            *iteration,
            "loop.done",
            "step.exit",
        ]

    def test_of_an_empty_loop_enters_directly_before_it_is_done(self) -> None:
        played = play(book(step("start", loop={"in": [], "iterator": "item"})))
        assert played.events("start") == ["loop.opened", "step.enter", "loop.done", "step.exit"]

    def test_every_event_of_a_command_names_the_plain_step_and_the_command(self) -> None:
        played = play(book(step("start", loop={"in": [1, 2], "iterator": "item"})))
        of_commands = [fact for fact in played.log if fact.event_type.startswith(("command.", "call."))]
        assert {fact.node_name for fact in of_commands} == {"start"}
        issued = [fact.event_id for fact in played.of("command.issued")]
        assert {fact.command_id for fact in of_commands} == set(issued)

    def test_the_first_step_is_named_when_the_workflow_begins(self) -> None:
        assert play(book(step("a"), step("start"))).one("workflow.initialized").node_name == "start"

    def test_only_known_types_are_said(self) -> None:
        loop = {"in": [1], "iterator": "item"}
        document = book(step("start", on_error("b")), step("b", "c", loop=loop), step("c", kind="noop"))
        assert set(play(document, {"start": error()}).types) <= KNOWN_TYPES

    def test_a_result_has_a_status_and_the_small_fields(self) -> None:
        played = play(book(step("start")), {"start": Said(result={"x": 1}, reference={"kind": "result_ref"})})
        expected = {"status": "ok", "context": {"x": 1}, "reference": {"kind": "result_ref"}}
        assert played.one("call.done").payload["result"] == expected


class TestReports:
    def test_one_of_an_unknown_command_gives_nothing(self) -> None:
        player = Player(book(step("start")))
        player.start()
        assert player.say(Report(command_id=999, result={})) == []

    def test_a_repeated_one_gives_nothing(self) -> None:
        player = Player(book(step("start", "b"), step("b")))
        player.start()
        (command,) = player.control.commands
        assert player.report(command)
        assert player.say(Report(command_id=command, result={"again": True})) == []
        assert player.result("start") == {}

    def test_a_late_one_after_the_end_gives_nothing(self) -> None:
        played = play(book(step("start")))
        assert played.say(Report(command_id=played.one("command.issued").event_id)) == []

    def test_a_late_one_of_an_iteration_counts_nothing(self) -> None:
        player = Player(book(step("start", loop={"in": [1, 2], "iterator": "item"})))
        player.start()
        (first,) = player.control.commands
        player.report(first)
        assert player.say(Report(command_id=first)) == []
        assert player.control.loops["start"].success == 1

    def test_a_late_one_of_an_earlier_run_does_not_touch_the_present_one(self) -> None:
        player = Player(book(step("start", arc("start", "{{ output.data.again }}"))), {"start": {"again": True}})
        player.start()
        (first,) = player.control.commands
        player.report(first)
        assert player.say(Report(command_id=first, result={"again": False})) == []
        assert player.control.steps["start"].run == 2

    def test_what_the_worker_assigned_is_recorded_and_applied(self) -> None:
        played = play(book(step("start")), {"start": Said(result=1, set={"ctx.page": 3})})
        assert played.one("call.done").payload["set"] == {"ctx.page": 3}
        assert played.ctx == {"page": 3}

    def test_who_worked_is_noted(self) -> None:
        player = Player(book(step("start")))
        player.start()
        (command,) = player.control.commands
        facts = player.say(Report(command_id=command, worker_id="w1"))
        assert {fact.event_type: fact.meta for fact in facts}["command.claimed"] == {"worker_id": "w1"}

    def test_several_decisions_may_share_one_append(self) -> None:
        document = book(step("start", "a", "b", mode="inclusive", kind="noop"), step("a", "c"), step("b"), step("c"))
        player = Player(document)
        player.start()
        first, second = sorted(player.control.commands)
        known: Any = player._known("a")
        facts = player.engine.report(player.control, Report(command_id=first), known)
        facts += player.engine.report(player.control, Report(command_id=second), known, offset=len(facts))
        player._take(facts)
        assert [command.step for command in player.control.commands.values()] == ["c"]
        assert player.go_on().status == "COMPLETED"


class TestPurity:
    def test_the_same_play_gives_the_same_facts(self) -> None:
        document = book(step("start", "a", "b", mode="inclusive"), step("a", "c"), step("b", "c"), step("c"))
        assert play(document, seed=5).log == play(document, seed=5).log

    def test_what_was_said_does_not_change_when_values_change_later(self) -> None:
        document = book(
            step("start", "a", kind="noop", set={"ctx.copy": "{{ workload.given }}", "ctx.seed.k": 1}),
            step("a", kind="noop", set={"ctx.copy.more": 2, "ctx.seed.k": 2}),
            workload={"given": {"one": 1}},
        )
        player = Player(document)
        facts = player.start(ctx={"seed": {"k": 0}})
        assert facts[0].payload["ctx"] == {"seed": {"k": 0}}
        assert player.one("step.exit", "start").payload["set"]["ctx.copy"] == {"one": 1}
        assert player.control.workload == {"given": {"one": 1}}
        assert player.ctx == {"seed": {"k": 2}, "copy": {"one": 1, "more": 2}}

    def test_the_context_of_a_command_is_that_of_its_issue(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop", set={"ctx.n": 1}),
            step("a", task={"input": {"all": "{{ ctx }}"}}),
            step("b", kind="noop", set={"ctx.n": 2}),
        )
        player = Player(document)
        player.start()
        assert player.one("command.issued", "a").payload["context"]["ctx"] == {"n": 1}
        assert player.ctx == {"n": 2}

    def test_a_decision_is_bounded_when_noops_go_round_for_ever(self) -> None:
        player = Player(book(step("start", "start", kind="noop")))
        assert len(player.start()) < 10_000
        assert [command.kind for command in player.control.commands.values()] == ["noop"]

    def test_empty_loops_that_go_round_for_ever_are_a_failure(self) -> None:
        played = play(book(step("start", arc("start", True), loop={"in": [], "iterator": "item"})))
        assert played.status == "FAILED"
        assert played.end.payload["error"]["code"] == "ROUTING_LIMIT"


class TestCancellation:
    @staticmethod
    def busy(**spec: Any) -> Player:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", "c"),
            step("b", "c"),
            step("c"),
            step("last"),
            **spec,
        )
        player = Player(document, {"b": {"from": "b"}})
        player.start()
        player.finish("a")
        return player

    def test_writes_the_terminal_event_at_once(self) -> None:
        player = self.busy()
        (fact,) = player.cancel("too late")
        assert (fact.event_type, fact.node_name, fact.status) == ("playbook.cancelled", "playbook", "CANCELLED")
        assert fact.payload["reason"] == "too late"
        assert fact.payload["final_step"] == "a"
        assert player.status == "CANCELLED"
        assert not player.control.tokens

    def test_a_second_one_says_nothing(self) -> None:
        player = self.busy()
        player.cancel()
        assert player.cancel() == []

    def test_an_execution_that_has_ended_is_not_cancelled(self) -> None:
        played = play(book(step("start")))
        assert played.cancel() == []
        assert played.status == "COMPLETED"

    def test_a_command_in_flight_ends_as_cancelled_with_its_result_and_routes_nothing(self) -> None:
        player = self.busy()
        player.cancel()
        facts = player.finish("b")
        assert [fact.event_type for fact in facts] == ["command.claimed", "command.started", "command.cancelled"]
        assert facts[-1].payload["result"] == {"status": "ok", "context": {"from": "b"}}
        assert not player.control.commands
        assert player.end.event_type == "playbook.cancelled"
        assert "workflow.completed" not in player.types

    def test_a_failed_one_keeps_its_error(self) -> None:
        player = Player(book(step("start")), {"start": error("late")})
        player.start()
        player.cancel()
        assert player.finish("start")[-1].payload["error"]["message"] == "late"
        assert player.status == "CANCELLED"

    def test_iterations_in_flight_end_as_cancelled_and_no_other_starts(self) -> None:
        loop = {"in": [1, 2, 3], "iterator": "item", "spec": {"mode": "parallel", "max_in_flight": 2}}
        player = Player(book(step("start", loop=loop)))
        player.start()
        player.cancel()
        player.go_on()
        assert player.types.count("command.issued") == player.types.count("command.cancelled") == 2
        assert "loop.done" not in player.types

    def test_the_final_step_does_not_run(self) -> None:
        player = self.busy(final_step="last")
        player.cancel()
        player.go_on()
        assert "last" not in player.entered

    def test_a_repeated_report_after_it_gives_nothing(self) -> None:
        player = self.busy()
        (command,) = player.control.commands
        player.cancel()
        player.report(command)
        assert player.say(Report(command_id=command)) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_process_that_comes_back_goes_on_where_the_log_ends(seed: int) -> None:
    loop = {"in": [1, 2, 3], "iterator": "item", "spec": {"mode": "parallel", "max_in_flight": 2}}
    document = book(
        step("start", "a", "b", mode="inclusive"), step("a", "c", loop=loop), step("b", "c"), step("c"), final_step="c"
    )
    whole = play(document, {"a": lambda player, name, index: index}, seed=seed)
    for decisions in range(1, len(whole.ends)):
        assert whole.fork(decisions).go_on().log == whole.log
