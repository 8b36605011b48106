"""How an execution ends: status, result, error, the final step (3.6, 1.2)."""

from __future__ import annotations

from typing import Any

from noetl.playbook.document import Playbook
from tests.unit.engine.play import Player, arc, book, error, on_error, play, step


def finishing(*steps: dict[str, Any], **more: Any) -> Playbook:
    return book(*steps, step("last", **more), final_step="last")


class TestEnd:
    def test_comes_when_no_token_and_no_command_is_left(self) -> None:
        document = book(step("start", "a", "b", mode="inclusive", kind="noop"), step("a"), step("b"))
        player = Player(document)
        player.start()
        player.finish("a")
        assert player.status == "RUNNING"
        player.finish("b")
        assert player.status == "COMPLETED"
        assert not player.control.tokens
        assert not player.control.groups

    def test_is_one_terminal_event_of_the_node_playbook(self) -> None:
        played = play(book(step("start", "a"), step("a")), {"a": {"x": 1}})
        assert (played.end.event_type, played.end.node_name, played.end.status) == (
            "playbook.completed",
            "playbook",
            "COMPLETED",
        )
        assert played.types[-2] == "workflow.completed"

    def test_carries_the_result_of_the_step_that_finished_last(self) -> None:
        document = book(step("start", "a", "b", mode="inclusive", kind="noop"), step("a"), step("b"))
        player = Player(document, {"a": "from a", "b": "from b"})
        player.start()
        player.finish("b")
        player.finish("a")
        assert player.end.payload == {
            "final_step": "a",
            "result": {"status": "ok", "context": "from a"},
            "error": None,
        }

    def test_of_a_failed_one_carries_the_error(self) -> None:
        played = play(book(step("start")), {"start": error("x")})
        assert played.end.payload["error"]["message"] == "x"
        assert played.end.payload["result"]["status"] == "error"
        assert played.end.payload["final_step"] == "start"

    def test_nothing_leads_to_a_step_called_end(self) -> None:
        assert play(book(step("start"), step("end"))).entered == ["start"]


class TestEntry:
    def test_is_the_configured_step_else_start_else_the_first(self) -> None:
        assert play(book(step("a"), step("start"), step("b"), entry_step="b")).entered == ["b"]
        assert play(book(step("a"), step("start"))).entered == ["start"]
        assert play(book(step("a"), step("b"))).entered == ["a"]


class TestFinalStep:
    def test_runs_after_everything_else(self) -> None:
        document = finishing(step("start", "a", "b", mode="inclusive", kind="noop"), step("a"), step("b"))
        for seed in range(5):
            played = play(document, {"last": "bye"}, seed=seed)
            assert played.entered[-1] == "last"
            assert played.entered.count("last") == 1
            assert played.end.payload["final_step"] == "last"
            assert played.end.payload["result"]["context"] == "bye"

    def test_runs_after_a_failure_and_does_not_heal_it(self) -> None:
        played = play(finishing(step("start", "a"), step("a")), {"start": error("x")})
        assert played.entered == ["start", "last"]
        assert played.status == "FAILED"
        assert played.end.payload["error"]["message"] == "x"
        assert played.end.payload["result"] == {"status": "ok", "context": {}}

    def test_sees_ctx_and_all_results(self) -> None:
        seen = {"ctx": "{{ ctx.k }}", "a": "{{ start.x }}", "status": "{{ start.status }}"}
        document = finishing(step("start", set={"ctx.k": 1}), kind="noop", result=seen)
        assert play(document, {"start": {"x": 2}}).result("last") == {"ctx": 1, "a": 2, "status": "ok"}

    def test_that_fails_fails_the_execution(self) -> None:
        played = play(finishing(step("start")), {"last": error("at the end")})
        assert played.status == "FAILED"
        assert played.end.payload["error"]["message"] == "at the end"

    def test_that_fails_after_a_failure_does_not_hide_it(self) -> None:
        played = play(finishing(step("start")), {"start": error("first"), "last": error("second")})
        assert played.end.payload["error"]["message"] == "first"

    def test_does_not_run_again_when_arcs_have_led_to_it(self) -> None:
        played = play(finishing(step("start", "last")), {"last": {"x": 1}})
        assert played.entered == ["start", "last"]

    def test_gives_the_result_also_when_another_step_finished_after_it(self) -> None:
        document = finishing(step("start", "last", "slow", mode="inclusive", kind="noop"), step("slow"))
        player = Player(document, {"last": "mine", "slow": "other"})
        player.start()
        player.finish("last")
        player.finish("slow")
        assert player.entered.count("last") == 1
        assert player.end.payload["final_step"] == "slow"
        assert player.end.payload["result"]["context"] == "mine"

    def test_reached_by_arcs_follows_its_own_arcs(self) -> None:
        document = book(step("start", "last"), step("last", "after"), step("after"), final_step="last")
        assert play(document).entered == ["start", "last", "after"]

    def test_run_at_the_end_is_followed_by_nothing(self) -> None:
        """Everything else has ended: an arc of its own would start something after the last run."""
        document = book(step("start"), step("last", "after", on_error("after")), step("after"), final_step="last")
        assert play(document).entered == ["start", "last"]
        failed = play(document, {"last": error()})
        assert (failed.entered, failed.status) == (["start", "last"], "FAILED")

    def test_dropped_while_it_was_parked_still_runs(self) -> None:
        document = book(
            step("start", "a", "bad", mode="inclusive", kind="noop"),
            step("a", "last"),
            step("bad", "last"),
            step("last"),
            final_step="last",
        )
        player = Player(document, {"bad": error("x")})
        player.start()
        player.finish("a")
        assert player.parked == ["last"]
        player.finish("bad")
        assert player.go_on().entered == ["start", "a", "bad", "last"]
        assert player.status == "FAILED"

    def test_can_be_a_loop_and_runs_it_also_after_a_failure(self) -> None:
        loop = {"in": [1, 2], "iterator": "item"}
        for answer, status in (({}, "COMPLETED"), (error(), "FAILED")):
            played = play(finishing(step("start"), loop=loop), {"start": answer})
            assert played.runs == ["start", "last", "last"]
            assert played.status == status
            assert played.result("last")["count"] == 2

    def test_without_a_match_is_no_error(self) -> None:
        document = book(step("start"), step("last", arc("start", False)), final_step="last", no_next_is_error=True)
        assert play(document).status == "COMPLETED"

    def test_can_be_the_entry(self) -> None:
        played = play(book(step("start"), final_step="start"))
        assert played.entered == ["start"]

    def test_is_known_to_have_run_after_a_replay(self) -> None:
        document = finishing(step("start"))
        whole = play(document)
        for decisions in range(1, len(whole.ends) + 1):
            assert whole.fork(decisions).go_on().log == whole.log
