"""Collections, limits, failed iterations, results, epochs (4.1 to 4.5)."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.turn import normalise
from noetl.playbook.document import Playbook
from tests.unit.engine.play import Failed, Player, Said, arc, book, error, on_error, play, step


def looped(
    items: Any, *arcs: Any, failure: str | None = None, more: dict[str, Any] | None = None, **spec: Any
) -> Playbook:
    if failure:
        spec["policy"] = {"failure": {"mode": failure}}
    loop = {"in": items, "iterator": "item", "spec": spec}
    return book(step("start", *arcs, loop=loop, **(more or {})), step("a"), step("b"))


def each(player: Player, name: str, index: int | None) -> Any:
    return {"i": index}


def failing(*indexes: int) -> Any:
    return lambda player, name, index: error(f"item {index}") if index in indexes else {"i": index}


class TestCollections:
    @pytest.mark.parametrize(
        ("value", "items"),
        [
            ([1, "x"], [1, "x"]),
            (None, []),
            ((1, 2), [1, 2]),
            ({1}, [1]),
            (frozenset({2}), [2]),
            (range(2), [0, 1]),
            ({"a": 1}, [{"a": 1}]),
            ("[1, 2]", [1, 2]),
            ('["a"]', ["a"]),
            ("abc", ["abc"]),
            ('{"a": 1}', ['{"a": 1}']),
            ("[broken", ["[broken"]),
            ("5", ["5"]),
            ("", [""]),
            (5, [5]),
        ],
    )
    def test_are_normalised(self, value: Any, items: list[Any]) -> None:
        assert normalise(value) == items

    @pytest.mark.parametrize(
        ("items", "expected"),
        [
            ("{{ workload.rows }}", [1, 2]),
            ("{{ nowhere }}", []),
            ("{{ none }}", []),
            ("{{ range(3) }}", [0, 1, 2]),
            ("{{ workload.rows | map('string') }}", ["1", "2"]),
            ("{{ workload.one }}", [{"k": 1}]),
            ("{{ workload.text }}", ["pear"]),
            ("{{ workload.spelled }}", [7, 8]),
            ([1, "{{ workload.text }}"], [1, "pear"]),
        ],
    )
    def test_are_rendered_when_the_step_is_entered(self, items: Any, expected: list[Any]) -> None:
        given: dict[str, Any] = {"rows": [1, 2], "one": {"k": 1}, "text": "pear", "spelled": "[7, 8]"}
        played = play(looped(items), **given)
        assert played.one("loop.opened").payload["items"] == expected
        assert played.one("loop.opened").payload["total"] == len(expected)

    def test_an_empty_list_is_done_at_once_with_zero_counts(self) -> None:
        played = play(looped([], arc("a", "{{ event.name == 'loop.done' }}")))
        assert played.runs == ["a"]
        assert played.one("loop.done").payload["stats"] == {"total": 0, "success": 0, "failed": 0}
        expected = {"results": [], "stats": {"total": 0, "success": 0, "failed": 0}, "count": 0, "data": []}
        assert played.result("start") == expected

    def test_a_collection_that_cannot_be_rendered_fails_the_step_run(self) -> None:
        played = play(looped("{{ 1 / 0 }}"))
        assert played.status == "FAILED"
        assert played.end.payload["error"]["kind"] == "schema"
        assert played.events("start") == ["loop.opened", "step.enter", "loop.done", "step.exit"]
        assert play(looped("{{ 1 / 0 }}", on_error("a"))).entered == ["start", "a"]

    def test_a_step_does_not_run_over_its_own_cleared_result(self) -> None:
        items = "{{ start.results if start is defined else [1] }}"
        played = play(looped(items, arc("start", "{{ not ctx.again }}", again=True)))
        assert [fact.payload["items"] for fact in played.of("loop.opened")] == [[1], [1]]


class TestLimits:
    def most_in_flight(self, document: Playbook, seed: int | None = None) -> int:
        player = Player(document, {"start": each}, seed)
        player.start()
        most = len(player.control.commands)
        while player.step():
            most = max(most, len(player.control.commands))
        assert player.runs.count("start") == 6
        return most

    def test_sequential_runs_one_at_a_time_in_order(self) -> None:
        document = looped(list(range(6)), max_in_flight=4)
        assert self.most_in_flight(document) == 1
        issued = [fact.payload["loop_index"] for fact in play(document).of("command.issued")]
        assert issued == list(range(6))

    @pytest.mark.parametrize("limit", [1, 2, 4, 100])
    def test_parallel_keeps_as_many_in_flight_as_it_may(self, limit: int) -> None:
        document = looped(list(range(6)), mode="parallel", max_in_flight=limit)
        for seed in range(3):
            assert self.most_in_flight(document, seed) == min(limit, 6)

    def test_parallel_without_a_limit_runs_one_at_a_time(self) -> None:
        assert self.most_in_flight(looped(list(range(6)), mode="parallel")) == 1

    @pytest.mark.parametrize(("limit", "expected"), [(3, 3), ("2", 2), (0, 1), (None, 1), ("many", 1)])
    def test_the_limit_may_be_a_template(self, limit: Any, expected: int) -> None:
        document = looped(list(range(6)), mode="parallel", max_in_flight="{{ workload.limit }}")
        player = Player(document)
        player.start(limit=limit)
        assert len(player.control.commands) == expected

    def test_the_limit_is_rendered_once(self) -> None:
        document = looped([1, 2, 3], mode="parallel", max_in_flight="{{ ctx.limit or 2 }}")
        player = Player(document, {"start": Said(result={}, set={"ctx.limit": 1})})
        player.start()
        player.step()
        assert len(player.control.commands) == 2


class TestIterations:
    def test_record_their_index_item_and_epoch(self) -> None:
        played = play(looped(["x", "y"], mode="parallel", max_in_flight=2))
        issued = [fact.payload for fact in played.of("command.issued")]
        assert [(one["loop_index"], one["item"], one["loop_id"]) for one in issued] == [
            (0, "x", "start/1"),
            (1, "y", "start/1"),
        ]

    def test_the_iterator_of_the_loop_is_recorded(self) -> None:
        assert play(looped([1])).one("loop.opened").payload["iterator"] == "item"

    def test_writes_are_merged_when_they_end_the_last_writer_winning(self) -> None:
        document = looped([1, 2, 3], mode="parallel", max_in_flight=3)
        answer = {"start": lambda player, name, index: Said(result=index, set={"ctx.last": index})}
        player = Player(document, answer)
        player.start()
        for index in (2, 0, 1):
            player.finish("start", index)
        assert player.ctx == {"last": 1}

    def test_sequential_ones_can_accumulate(self) -> None:
        body = {"input": {"seen": "{{ ctx.sum }}", "own": "{{ step.sum }}"}}
        document = looped([1, 2, 3], more={"task": body})
        sums = {"start": lambda player, name, index: Said(result=1, set={"ctx.sum": index, "step.sum": index})}
        played = play(document, sums)
        contexts = [fact.payload.get("context", {}) for fact in played.of("command.issued")]
        assert [one.get("ctx") for one in contexts] == [None, {"sum": 0}, {"sum": 1}]
        assert [one.get("step") for one in contexts] == [None, {"sum": 0}, {"sum": 1}]

    def test_step_values_reach_the_arcs_of_the_loop(self) -> None:
        document = looped([1, 2], arc("a", "{{ step.k == 1 }}"))
        answer = {"start": lambda player, name, index: Said(result=1, set={"step.k": index})}
        assert play(document, answer).entered == ["start", "a"]

    def test_the_arcs_are_evaluated_once_when_the_whole_loop_ends(self) -> None:
        document = looped([1, 2, 3], arc("a", "{{ event.name == 'loop.done' }}"))
        played = play(document)
        assert len(played.of("step.exit", "start")) == 1
        assert played.runs == ["start"] * 3 + ["a"]


class TestFailures:
    @pytest.mark.parametrize("failure", [None, "fail_at_end"])
    def test_at_end_the_others_run(self, failure: str | None) -> None:
        played = play(looped([1, 2, 3], failure=failure), {"start": failing(0)})
        assert played.runs == ["start"] * 3
        assert played.status == "FAILED"
        assert played.one("loop.done").payload["stats"] == {"total": 3, "success": 2, "failed": 1}

    def test_fast_starts_no_other(self) -> None:
        played = play(looped([1, 2, 3], failure="fail_fast"), {"start": failing(1)})
        assert played.runs == ["start"] * 2
        assert played.status == "FAILED"

    def test_fast_lets_running_ones_finish(self) -> None:
        player = Player(
            looped([1, 2, 3, 4, 5], failure="fail_fast", mode="parallel", max_in_flight=3), {"start": failing(1)}
        )
        player.start()
        player.finish("start", 1)
        assert sorted(command.index or 0 for command in player.control.commands.values()) == [0, 2]
        assert player.status == "RUNNING"
        player.go_on()
        assert player.one("loop.done").payload["stats"] == {"total": 3, "success": 2, "failed": 1}

    def test_best_effort_only_counts(self) -> None:
        played = play(looped([1, 2], "a", failure="best_effort"), {"start": error("x")})
        assert played.status == "COMPLETED"
        assert played.entered == ["start", "a"]
        assert played.one("loop.done").payload["stats"] == {"total": 2, "success": 0, "failed": 2}
        assert played.one("loop.done").status == "COMPLETED"

    def test_the_error_is_that_of_the_first_by_index_not_by_time(self) -> None:
        player = Player(looped([1, 2, 3], mode="parallel", max_in_flight=3), {"start": failing(0, 2)})
        player.start()
        for index in (2, 1, 0):
            player.finish("start", index)
        assert player.end.payload["error"]["message"] == "item 0"
        assert player.one("loop.done").payload["error"]["message"] == "item 0"

    def test_a_failed_loop_is_routed_like_any_failure(self) -> None:
        document = looped([1, 2], "b", arc("a", "{{ output.status == 'error' and error.message == 'item 1' }}"))
        played = play(document, {"start": failing(1)})
        assert played.entered == ["start", "a"]
        assert played.status == "COMPLETED"
        assert len(played.of("loop.done")) == 1

    def test_its_result_has_the_shape_of_any_loop(self) -> None:
        played = play(looped([1, 2]), {"start": failing(1)})
        result = played.result("start")
        assert set(result) == {"results", "stats", "count", "data"}
        assert result["results"][0] == {"i": 0}
        assert result["results"][1] == {"status": "error", "error": played.end.payload["error"]}


class TestResult:
    def test_is_by_index_whatever_the_order_of_completion(self) -> None:
        document = looped(list(range(5)), mode="parallel", max_in_flight=5)
        for seed in range(5):
            result = play(document, {"start": each}, seed=seed).result("start")
            assert result["results"] == [{"i": index} for index in range(5)]
            assert result["data"] == result["results"]
            assert result["count"] == result["stats"]["total"] == 5

    def test_can_be_read_by_arcs(self) -> None:
        when = "{{ output.data[1].i == 1 and start.count == 2 and start.data[0].i == 0 and result.stats.success == 2 }}"
        assert play(looped([1, 2], arc("a", when)), {"start": each}).entered == ["start", "a"]


class TestEpochs:
    def again(self, rounds: int, **more: Any) -> Playbook:
        back = arc("start", f"{{{{ ctx.n < {rounds} }}}}")
        return looped([1, 2], back, more={"set": {"ctx.n": "{{ (ctx.n or 0) + 1 }}"}}, **more)

    def test_each_entry_opens_one_with_zeroed_counters(self) -> None:
        played = play(self.again(3))
        assert [fact.payload["epoch"] for fact in played.of("loop.opened")] == [1, 2, 3]
        assert [fact.aggregate_id for fact in played.of("loop.done")] == ["start/1", "start/2", "start/3"]
        assert [fact.payload["stats"]["total"] for fact in played.of("loop.done")] == [2, 2, 2]

    def test_each_has_one_enter_and_one_exit(self) -> None:
        played = play(self.again(3))
        assert len(played.of("step.enter")) == len(played.of("step.exit")) == 3

    def test_a_new_one_has_no_prior_result(self) -> None:
        player = Player(self.again(2))
        player.start()
        player.step()
        player.step()
        assert player.control.steps["start"].result == {}
        assert player.control.loops["start"].success == 0

    def barren(self, player: Player, name: str, index: int | None) -> Failed:
        return error(f"run {len(player.runs)}")

    def test_a_fourth_after_three_without_a_success_is_stalled(self) -> None:
        played = play(self.again(4, failure="best_effort"), {"start": self.barren})
        assert len(played.runs) == 6
        assert played.one("loop.stalled").aggregate_id == "start/4"
        assert played.events("start")[-5:] == ["loop.opened", "loop.stalled", "step.enter", "loop.done", "step.exit"]
        assert played.of("loop.done")[3].payload["error"]["code"] == "LOOP_STALLED"

    def test_a_stalled_one_fails_the_step_run(self) -> None:
        back = arc("start", "{{ output.status == 'ok' }}")
        played = play(looped([1], back, failure="best_effort"), {"start": self.barren})
        assert played.runs == ["start"] * 3
        assert played.status == "FAILED"
        assert played.end.payload["error"]["code"] == "LOOP_STALLED"

    def test_a_success_in_between_begins_the_count_anew(self) -> None:
        document = self.again(8, failure="best_effort")
        mostly: dict[str, Any] = {"start": lambda player, name, index: {} if len(player.runs) in (5, 11) else error()}
        played = play(document, mostly)
        assert "loop.stalled" not in played.types
        assert played.status == "COMPLETED"

    def test_empty_ones_do_not_count(self) -> None:
        back = arc("start", "{{ ctx.n < 6 }}")
        document = looped([], back, more={"set": {"ctx.n": "{{ (ctx.n or 0) + 1 }}"}})
        played = play(document)
        assert len(played.of("loop.done")) == 6
        assert "loop.stalled" not in played.types
