"""Order, conditions, no match, absorption, re-entry, fan-out and join (3.1 to 3.3, 3.5)."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.routing import Graph
from tests.unit.engine.play import NOW, Player, Said, arc, book, error, on_error, play, step


def taken(played: Player, name: str) -> list[str]:
    found = played.one("step.exit", name).payload["arcs"]
    assert isinstance(found, list)
    return found


class TestOrder:
    def test_the_result_is_stored_before_the_set_of_the_step(self) -> None:
        played = play(book(step("start", set={"ctx.n": "{{ start.n }}"})), {"start": {"n": 4}})
        assert played.ctx == {"n": 4}

    def test_the_set_of_the_step_comes_before_the_arcs(self) -> None:
        document = book(step("start", arc("a", "{{ ctx.go }}"), set={"ctx.go": True}), step("a"))
        assert play(document).entered == ["start", "a"]

    def test_the_set_of_an_arc_comes_before_its_target_is_scheduled(self) -> None:
        document = book(step("start", arc("a", n=5)), step("a", kind="noop", result="{{ ctx.n }}"))
        assert play(document).result("a") == 5

    def test_only_selected_arcs_assign(self) -> None:
        document = book(step("start", arc("a", False, no=1), arc("a", yes=1)), step("a"))
        assert play(document).ctx == {"yes": 1}

    def test_arc_sets_are_applied_in_list_order_each_seeing_the_one_before(self) -> None:
        document = book(
            step("start", arc("a", n=1), arc("b", n="{{ ctx.n + 1 }}"), mode="inclusive"), step("a"), step("b")
        )
        assert play(document).ctx == {"n": 2}

    def test_all_conditions_are_evaluated_before_any_arc_assigns(self) -> None:
        document = book(
            step("start", arc("a", n=1), arc("b", "{{ ctx.n is defined }}"), mode="inclusive"), step("a"), step("b")
        )
        assert taken(play(document), "start") == ["a"]

    def test_step_values_reach_arcs_and_are_dropped_afterwards(self) -> None:
        document = book(
            step("start", arc("a", "{{ step.k == 1 }}", seen="{{ step.k }}"), set={"step.k": 1}),
            step("a", arc("b", "{{ step.k is defined }}")),
            step("b"),
        )
        played = play(document)
        assert played.ctx == {"seen": 1}
        assert played.entered == ["start", "a"]
        assert played.control.steps["start"].scratch == {}

    def test_an_arc_may_write_step_values_for_the_next_one(self) -> None:
        first = {"step": "a", "set": {"step.k": 7}}
        document = book(step("start", first, arc("b", seen="{{ step.k }}"), mode="inclusive"), step("a"), step("b"))
        assert play(document).ctx == {"seen": 7}

    def test_later_writes_swallow_earlier_ones_in_the_log_too(self) -> None:
        document = book(
            step(
                "start",
                {"step": "a", "set": {"ctx.m.k": 1}},
                {"step": "b", "set": {"ctx.m": {"fresh": True}}},
                {"step": "c", "set": {"ctx.m.z": 2}},
                mode="inclusive",
                set={"ctx.m": {"old": 1}},
            ),
            *(step(name) for name in "abc"),
        )
        played = play(document)
        assert played.ctx == {"m": {"fresh": True, "z": 2}}
        assert played.one("step.exit", "start").payload["set"] == {"ctx.m": {"fresh": True, "z": 2}}


class TestSelection:
    def test_exclusive_takes_the_first_that_matches(self) -> None:
        document = book(step("start", arc("a", False), arc("b", True), arc("c", True)), *map(step, "abc"))
        assert taken(play(document), "start") == ["b"]

    def test_inclusive_takes_all_that_match_in_list_order(self) -> None:
        document = book(
            step("start", arc("c", True), arc("b", False), arc("a"), mode="inclusive"), *map(step, ("a", "b", "c"))
        )
        assert taken(play(document), "start") == ["c", "a"]

    @pytest.mark.parametrize(
        ("when", "matches"),
        [
            (True, True),
            (False, False),
            (0, False),
            ("{{ 1 }}", True),
            ("{{ [] }}", False),
            ("{{ [0] }}", True),
            ("{{ ' No ' }}", False),
            ("{{ 'none' }}", False),
            ("{{ 'FALSE' }}", False),
            ("{{ '0' }}", False),
            ("{{ '' }}", False),
            ("{{ 'yes' }}", True),
            ("{{ nowhere }}", False),
            ("{{ nowhere.deep.down }}", False),
            ("{{ 1 / 0 }}", False),
        ],
    )
    def test_conditions(self, when: Any, matches: bool) -> None:
        document = book(step("start", arc("a", when)), step("a"))
        assert taken(play(document), "start") == (["a"] if matches else [])

    def test_a_condition_that_raises_is_logged_and_the_next_one_tried(self) -> None:
        played = play(book(step("start", arc("a", "{{ 1 / 0 }}"), arc("b")), step("a"), step("b")))
        exit_fact = played.one("step.exit", "start")
        assert exit_fact.payload["arcs"] == ["b"]
        assert "arc to a" in exit_fact.payload["warnings"][0]

    def test_a_set_value_that_fails_is_logged_and_its_key_skipped(self) -> None:
        played = play(book(step("start", set={"ctx.bad": "{{ 1 / 0 }}", "ctx.good": 1})))
        assert played.ctx == {"good": 1}
        assert "ctx.bad" in played.one("step.exit").payload["warnings"][0]


class TestNamesOfConditions:
    def seen(self, expression: str, answer: Any = None, **more: Any) -> Any:
        document = book(step("start", arc("a", True, seen=f"{{{{ {expression} }}}}"), **more), step("a"))
        return play(document, {"start": answer}).ctx["seen"]

    def test_event_after_success(self) -> None:
        assert self.seen("[event.name, event.step, event.timestamp]") == ["call.done", "start", NOW]
        assert self.seen("event.name == 'step.done'") is True
        assert self.seen("event.name == 'step.failed'") is False

    def test_event_after_failure(self) -> None:
        assert self.seen("event.name == 'call.error' and event.name == 'step.failed'", error()) is True

    def test_event_after_a_loop_whatever_came_of_it(self) -> None:
        loop = {"in": [1], "iterator": "item"}
        assert self.seen("event.name", {}, loop=loop) == "loop.done"
        assert self.seen("event.name", error(), loop=loop) == "loop.done"
        assert self.seen("event.payload.stats.failed", error(), loop=loop) == 1

    def test_the_recorded_context_of_a_call(self) -> None:
        assert self.seen("event.payload.result.context.x", {"x": 3}) == 3

    def test_result_response_and_the_step_itself_are_the_result(self) -> None:
        assert self.seen("[result.x, response.x, start.x]", {"x": 1}) == [1, 1, 1]

    def test_error(self) -> None:
        assert self.seen("error.message", error("why")) == "why"
        assert self.seen("error is none and output.error is none", {}) is True

    def test_workload_and_identity(self) -> None:
        assert self.seen("execution_id ~ job.id") == "7777"


class TestNoMatch:
    def test_a_leaf_ends_the_branch(self) -> None:
        played = play(book(step("start")))
        assert played.status == "COMPLETED"
        assert "no_match" not in played.one("step.exit").payload

    def test_complete_records_it_and_quiet_does_not(self) -> None:
        loud = play(book(step("start", arc("a", False)), step("a")))
        quiet = play(book(step("start", arc("a", False), on_no_match="quiet"), step("a")))
        assert loud.status == quiet.status == "COMPLETED"
        assert loud.one("step.exit").payload["no_match"] is True
        assert "no_match" not in quiet.one("step.exit").payload
        assert "no_match" not in play(book(step("start", "a"), step("a"))).one("step.exit", "start").payload

    def test_it_is_an_error_when_the_document_says_so(self) -> None:
        played = play(book(step("start", arc("a", False)), step("a"), no_next_is_error=True))
        assert played.status == "FAILED"
        assert played.end.payload["error"]["code"] == "NO_ARC_MATCHED"

    def test_but_not_of_a_quiet_step_or_a_leaf(self) -> None:
        quiet = book(step("start", arc("a", False), on_no_match="quiet"), step("a"), no_next_is_error=True)
        assert play(quiet).status == "COMPLETED"
        assert play(book(step("start"), no_next_is_error=True)).status == "COMPLETED"

    def test_a_failure_without_a_match_is_its_own_and_not_a_missing_arc(self) -> None:
        played = play(book(step("start", "a"), step("a"), no_next_is_error=True), {"start": error("mine")})
        assert played.end.payload["error"]["message"] == "mine"


class TestReentry:
    def counting(self) -> Player:
        document = book(
            step("start", arc("start", "{{ ctx.n < 3 }}"), set={"ctx.n": "{{ (ctx.n or 0) + 1 }}"}), step("other")
        )
        return play(document, {"start": lambda player, name, index: {"n": len(player.runs)}})

    def test_a_finished_step_is_entered_again(self) -> None:
        played = self.counting()
        assert played.entered == ["start"] * 3
        assert played.result("start") == {"n": 3}
        assert played.control.steps["start"].run == 3

    def test_its_result_is_cleared_while_it_runs_again(self) -> None:
        document = book(
            step("start", "a", kind="noop", result="{{ 'here' if a is defined else 'cleared' }}"),
            step("a", arc("start", "{{ start == 'cleared' and not ctx.twice }}", twice=True)),
        )
        played = play(document)
        assert played.entered == ["start", "a", "start", "a"]
        assert played.result("start") == "here"
        player = Player(document)
        player.start()
        player.finish("a")
        assert player.control.steps["a"].result == {}
        assert player.control.steps["a"].state == "running"

    def test_its_own_last_result_is_not_seen_by_the_new_run(self) -> None:
        document = book(step("start", arc("start", "{{ start == 'new' and not ctx.t }}", t=1), kind="noop",
                             result="{{ 'old' if start is defined else 'new' }}"))  # fmt: skip
        assert play(document).result("start") == "new"

    def test_result_in_a_task_is_that_of_the_sender(self) -> None:
        document = book(step("start", "a"), step("a", kind="noop", result="{{ result.x }}"))
        assert play(document, {"start": {"x": 9}}).result("a") == 9

    def test_a_loopback_never_waits(self) -> None:
        document = book(
            step("start", "a"), step("a", arc("start", "{{ (ctx.n or 0) < 2 }}", n="{{ (ctx.n or 0) + 1 }}"))
        )
        assert play(document).entered == ["start", "a"] * 3


class TestAbsorption:
    def test_a_token_that_arrives_at_a_run_in_flight_starts_no_second_one(self) -> None:
        """The first branch may go back through the fan-out only, so the slow step waits for nobody."""
        document = book(
            step("start", "slow", "quick", mode="inclusive", kind="noop"),
            step("slow"),
            step("quick", arc("start", "{{ not ctx.once }}", once=True)),
        )
        player = Player(document)
        player.start()
        assert player.runs == []
        player.finish("quick")
        assert sorted(command.step for command in player.control.commands.values()) == ["quick", "slow"]
        player.go_on()
        assert player.entered.count("slow") == 1
        assert player.status == "COMPLETED"

    def test_an_absorbed_token_does_not_hold_up_a_join(self) -> None:
        document = book(
            step("start", "slow", "quick", mode="inclusive", kind="noop"),
            step("slow", "join"),
            step("quick", arc("start", "{{ not ctx.once }}", once=True), arc("join")),
            step("join"),
        )
        player = Player(document)
        player.start()
        player.finish("quick")
        player.finish("quick")
        assert player.parked == ["join"]
        player.finish("slow")
        assert player.go_on().entered == ["start", "quick", "start", "quick", "slow", "join"]


class TestGraph:
    def test_reach_is_a_path_of_at_least_one_arc(self) -> None:
        graph = Graph(book(step("a", "b"), step("b", "c"), step("c")))
        assert graph.reaches("a", "c", "")
        assert not graph.reaches("a", "a", "")
        assert not graph.reaches("c", "a", "")

    def test_it_does_not_pass_through_the_origin_but_may_end_there(self) -> None:
        graph = Graph(book(step("o", "a"), step("a", "o"), step("b", "o")))
        assert not graph.reaches("b", "a", "o")
        assert graph.reaches("b", "o", "o")
        assert not graph.reaches("o", "a", "o")

    def test_conditions_do_not_matter(self) -> None:
        assert Graph(book(step("a", arc("b", False)), step("b"))).reaches("a", "b", "")


def diamond(**more: Any) -> Any:
    return book(step("start", "a", "b", mode="inclusive", kind="noop"), step("a", "join"), step("b", "join"),
                step("join", **more))  # fmt: skip


class TestJoin:
    def test_runs_once_after_all_branches(self) -> None:
        for order in (["a", "b"], ["b", "a"]):
            player = Player(diamond())
            player.start()
            player.finish(order[0])
            assert player.parked == ["join"]
            assert "join" not in player.entered
            player.finish(order[1])
            player.go_on()
            assert player.entered.count("join") == 1
            assert player.status == "COMPLETED"

    def test_of_noops_only(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", "join", kind="noop"),
            step("b", "join", kind="noop"),
            step("join", kind="noop"),
        )
        assert play(document).entered == ["start", "a", "b", "join"]

    def test_does_not_wait_for_a_branch_that_has_ended_elsewhere(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", "join"),
            step("b", arc("join", False)),
            step("join"),
        )
        for order in (["a", "b"], ["b", "a"]):
            player = Player(document)
            player.start()
            for name in order:
                player.finish(name)
            assert player.go_on().entered.count("join") == 1

    def test_waits_for_a_branch_of_several_steps(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", "join"),
            step("b", "b2"),
            step("b2", "join"),
            step("join"),
        )
        player = Player(document)
        player.start()
        player.finish("a")
        player.finish("b")
        assert player.parked == ["join"]
        player.finish("b2")
        assert player.control.steps["join"].state == "running"

    def test_reads_each_branch_and_the_last_arrival_as_result(self) -> None:
        document = diamond(kind="noop", result={"a": "{{ a.x }}", "b": "{{ b.x }}", "last": "{{ result.x }}"})
        for order, last in ((["a", "b"], 2), (["b", "a"], 1)):
            player = Player(document, {"a": {"x": 1}, "b": {"x": 2}})
            player.start()
            for name in order:
                player.finish(name)
            assert player.result("join") == {"a": 1, "b": 2, "last": last}

    def test_two_arcs_to_one_step_run_it_once(self) -> None:
        document = book(step("start", arc("a", x=1), arc("a", y=2), mode="inclusive"), step("a"))
        played = play(document)
        assert played.entered == ["start", "a"]
        assert played.ctx == {"x": 1, "y": 2}

    def test_an_exclusive_merge_never_waits(self) -> None:
        document = book(
            step("start", arc("a", "{{ output.data.left }}"), arc("b")),
            step("a", "join"),
            step("b", "join"),
            step("join"),
        )
        for left in (True, False):
            played = play(document, {"start": {"left": left}})
            assert played.entered == ["start", "a" if left else "b", "join"]
            assert not any(move["op"] == "park" for fact in played.log for move in fact.payload.get("moves", []))

    def test_one_selected_arc_of_an_inclusive_router_opens_no_group(self) -> None:
        played = play(book(step("start", "a", arc("b", False), mode="inclusive"), step("a"), step("b")))
        assert played.control.groups == {}
        assert not any(move["op"] == "open" for fact in played.log for move in fact.payload.get("moves", []))

    def test_a_handled_failure_still_arrives(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", on_error("join"), arc("join")),
            step("b", "join"),
            step("join"),
        )
        assert play(document, {"a": error()}).entered.count("join") == 1

    def test_a_skipped_branch_does_not_hold_it_up(self) -> None:
        refused = {"policy": {"admit": {"rules": [{"else": {"then": {"allow": False}}}]}}}
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", "join"),
            step("b", "join", spec=refused),
            step("join"),
        )
        assert play(document).entered == ["start", "a", "join"]

    def test_a_join_directly_behind_the_fan_out(self) -> None:
        document = book(step("start", "join", "b", mode="inclusive", kind="noop"), step("b", "join"), step("join"))
        player = Player(document)
        player.start()
        assert player.parked == ["join"]
        assert player.go_on().entered == ["start", "b", "join"]

    def test_two_joins_in_a_row(self) -> None:
        document = book(
            step("start", "a", "b", "c", mode="inclusive", kind="noop"),
            step("a", "first"),
            step("b", "first"),
            step("c", "second"),
            step("first", "second"),
            step("second"),
        )
        for seed in range(10):
            played = play(document, seed=seed)
            assert [played.entered.count(name) for name in ("first", "second")] == [1, 1]


class TestGroups:
    nested = book(
        step("start", "a", "b", mode="inclusive", kind="noop"),
        step("a", "a1", "a2", mode="inclusive"),
        step("a1", "inner"),
        step("a2", "inner"),
        step("inner", "outer"),
        step("b", "outer"),
        step("outer"),
    )

    @pytest.mark.parametrize("seed", range(10))
    def test_nest(self, seed: int) -> None:
        played = play(self.nested, seed=seed)
        assert sorted(str(name) for name in played.entered) == ["a", "a1", "a2", "b", "inner", "outer", "start"]
        assert played.entered.index("inner") > max(played.entered.index("a1"), played.entered.index("a2"))
        assert played.entered[-1] == "outer"
        assert played.control.groups == {}

    def test_a_token_belongs_to_all_enclosing_groups(self) -> None:
        player = Player(self.nested)
        player.start()
        player.finish("a")
        depth = {token.step: len(token.groups) for token in player.control.tokens.values()}
        assert depth == {"b": 1, "a1": 2, "a2": 2}

    def test_what_is_released_belongs_to_the_deepest_group_they_share(self) -> None:
        player = Player(self.nested)
        player.start()
        for name in ("a", "a1", "a2"):
            player.finish(name)
        (inner,) = [token for token in player.control.tokens.values() if token.step == "inner"]
        (beside,) = [token for token in player.control.tokens.values() if token.step == "b"]
        assert inner.groups == beside.groups
        assert len(inner.groups) == 1

    def test_what_is_released_leaves_the_groups_of_only_some(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", "a1", "aside", "along", mode="inclusive"),
            step("a1", "join"),
            step("aside"),
            step("along"),
            step("b", "join"),
            step("join"),
        )
        player = Player(document)
        player.start()
        for name in ("a", "a1", "b"):
            player.finish(name)
        depth = {token.step: len(token.groups) for token in player.control.tokens.values()}
        assert depth == {"aside": 2, "along": 2, "join": 1}

    def test_one_with_a_single_member_left_closes(self) -> None:
        document = book(step("start", "a", "b", mode="inclusive", kind="noop"), step("a"), step("b", "c"), step("c"))
        player = Player(document)
        player.start()
        player.finish("a")
        assert player.control.groups == {}
        assert [token.groups for token in player.control.tokens.values()] == [()]

    def test_an_inner_branch_may_leave_for_the_outer_join(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", "a1", "a2", mode="inclusive"),
            step("a1", "outer"),
            step("a2", arc("a3", "{{ output.data.on }}")),
            step("a3", "outer"),
            step("b", "outer"),
            step("outer"),
        )
        for on in (True, False):
            for seed in range(8):
                assert play(document, {"a2": {"on": on}}, seed=seed).entered.count("outer") == 1

    def test_a_second_round_of_a_fan_out_joins_again(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop", set={"ctx.round": "{{ (ctx.round or 0) + 1 }}"}),
            step("a", "join"),
            step("b", "join"),
            step("join", arc("start", "{{ ctx.round < 3 }}")),
        )
        for seed in range(5):
            played = play(document, seed=seed)
            assert played.entered.count("join") == 3
            assert played.entered.count("a") == 3

    def test_both_branches_may_come_back_to_the_origin(self) -> None:
        document = book(
            step("start", "a", "b", mode="inclusive", kind="noop"),
            step("a", arc("start", "{{ not ctx.again }}")),
            step("b", arc("start", "{{ not ctx.again }}")),
            step("other"),
        )
        said = Said(result={}, set={})
        player = Player(document, {"a": said, "b": said})
        player.start()
        player.finish("a")
        assert player.parked == ["start"]
        player.finish("b")
        assert player.entered.count("start") == 2


class TestStalemate:
    crossed = book(
        step("start", "a", "b", mode="inclusive", kind="noop"),
        step("a", arc("x", "{{ not ctx.done }}")),
        step("b", arc("y", "{{ not ctx.done }}")),
        step("y", arc("x", "{{ not ctx.done }}", done=True)),
        step("x", arc("y", "{{ not ctx.done }}", done=True)),
    )

    def test_the_step_that_stands_first_is_released(self) -> None:
        player = Player(self.crossed)
        player.start()
        player.finish("a")
        assert player.parked == ["x"]
        player.finish("b")
        assert [command.step for command in player.control.commands.values()] == ["y"]
        assert player.parked == ["x"]

    def test_and_the_execution_ends(self) -> None:
        for seed in range(10):
            played = play(self.crossed, seed=seed)
            assert played.status == "COMPLETED"
            assert not played.control.tokens

    def test_it_is_none_while_something_is_in_flight(self) -> None:
        document = book(
            step("start", "a", "b", "long", mode="inclusive", kind="noop"),
            step("a", "x"),
            step("b", "y"),
            step("long"),
            step("x", arc("y", False)),
            step("y", arc("x", False)),
        )
        player = Player(document)
        player.start()
        player.finish("a")
        player.finish("b")
        assert player.parked == ["x", "y"]
        player.finish("long")
        assert [command.step for command in player.control.commands.values()] == ["x"]
        assert player.go_on().status == "COMPLETED"
