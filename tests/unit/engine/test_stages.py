"""Data stages: how they are opened, what they run over, how they end (4.6; DESIGN 6)."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.context import names_used, paths_used
from noetl.engine.control import Control
from noetl.engine.decide import Engine, Report, recorded_value
from noetl.engine.fact import Fact
from noetl.engine.reads import Reads, looked_up
from noetl.engine.scope import Known, LazyResults
from noetl.playbook.document import Playbook
from tests.unit.engine.play import NOW, Player, Said, arc, book, error, kept, on_error, play, step

CLAIM = (
    "UPDATE job SET state = 'taken' WHERE run = '{{ execution_id }}' LIMIT {{ __frame_max_rows | int }} -- {{ tag }}"
)
REFERENCE = {"kind": "result_ref", "ref": "noetl://t/p/results/77/load~1/0/0/1", "store": "disk", "preview": "[",
             "meta": {"sha256": "ab"}}  # fmt: skip


def cursor(*arcs: Any, failure: str | None = None, options: dict[str, Any] | None = None, **spec: Any) -> Any:
    if failure:
        spec["policy"] = {"failure": {"mode": failure}}
    claims = {"kind": "postgres", "auth": "{{ pg }}", "claim": CLAIM, **({"options": options} if options else {})}
    return step("drain", *arcs, loop={"cursor": claims, "iterator": "todo", "spec": {"mode": "cursor", **spec}})


def fanout(items: Any, *arcs: Any, name: str = "score", failure: str | None = None, **spec: Any) -> Any:
    if failure:
        spec["policy"] = {"failure": {"mode": failure}}
    return step(name, *arcs, loop={"in": items, "iterator": "row", "spec": {"mode": "fanout", **spec}})


def queried(*arcs: str) -> Any:
    return {
        "step": "load",
        "tool": {"kind": "spark", "sql": "SELECT 1"},
        "next": {"arcs": [{"step": to} for to in arcs]},
    }


def reduced(source: str, *arcs: Any, **more: Any) -> Any:
    return step("report", *arcs, reduce={"from": source, **more})


def opened(document: Playbook, **payload: Any) -> Fact:
    """The `stage.opened` of the first step."""
    player = Player(document)
    player.start(**payload)
    return player.one("stage.opened")


def dataset(items: Any, **payload: Any) -> Any:
    return opened(book(fanout(items)), **payload).payload["source"]["input"]


class TestOpening:
    def test_a_stage_is_one_command_in_one_decision(self) -> None:
        player = Player(book(cursor(max_in_flight=3)))
        facts = player.start(pg="main")
        assert [fact.event_type for fact in facts[2:]] == ["loop.opened", "stage.opened", "command.issued"]
        loop, stage, command = facts[2:]
        assert stage.stage_id == stage.event_id == command.stage_id
        assert stage.command_id == command.command_id == command.event_id
        assert loop.payload == {"epoch": 1, "mode": "cursor", "iterator": "todo", "max_in_flight": 3}
        assert loop.aggregate_id == stage.payload["loop_id"] == command.payload["loop_id"] == "drain/1"
        assert (command.payload["kind"], command.payload["run"]) == ("stage", 1)
        assert (stage.status, stage.aggregate_type, stage.large) == ("OPEN", "stage", ("source",))

    def test_control_knows_the_command_by_its_stage(self) -> None:
        player = Player(book(cursor()))
        player.start()
        ((command_id, command),) = player.control.commands.items()
        stage_id = player.one("stage.opened").event_id
        assert (command.kind, command.stage_id, command.index) == ("stage", stage_id, None)
        assert player.control.steps["drain"].stage_id == stage_id
        assert command_id == stage_id + 1

    def test_it_says_how_it_is_to_be_run(self) -> None:
        payload = opened(book(cursor(max_in_flight=2, engine="worker", frame={"max_rows": 5}))).payload
        assert payload["frame_policy"] == {
            "max_rows": 5, "max_seconds": 30.0, "max_bytes": 64 << 20, "lease_seconds": 120.0,
            "heartbeat_seconds": 30.0, "row_concurrency": 1, "process": "row", "max_attempts": 3,
            "retry_mode": "whole_frame", "verify_ipc": False,
        }  # fmt: skip
        assert [payload[name] for name in ("kind", "slots", "failure", "engine")] == [
            "loop",
            2,
            "best_effort",
            "worker",
        ]

    def test_settings_may_be_templates(self) -> None:
        frame = {
            "max_rows": "{{ n }}",
            "lease_seconds": "{{ lease }}",
            "process": "{{ how }}",
            "max_bytes": "{{ most }}",
        }
        document = book(cursor(max_in_flight="{{ n + 1 }}", options={"max_iterations": "{{ n }}0"}, frame=frame))
        payload = opened(document, n=4, lease="2m", how="frame", most="1MiB").payload
        policy = payload["frame_policy"]
        assert [policy[name] for name in frame] == [4, 120.0, "frame", 1 << 20]
        assert (payload["slots"], payload["source"]["cursor"]["max_iterations"]) == (5, 40)

    def test_claim_and_auth_stay_as_they_were_written_for_the_slots(self) -> None:
        found = opened(book(cursor(options={"max_iterations": 7, "x": 1}))).payload["source"]["cursor"]
        assert found == {
            "kind": "postgres",
            "auth": "{{ pg }}",
            "claim": CLAIM,
            "max_iterations": 7,
            "options": {"x": 1},
        }

    def test_what_they_name_is_in_the_context_of_the_command(self) -> None:
        document = book(step("start", "drain"), cursor())
        assert names_used(document, document.steps["drain"]) >= {"pg", "tag", "execution_id", "__frame_max_rows"}
        assert ("tag",) in paths_used(document, document.steps["drain"])
        player = Player(document)
        player.start(pg="main", tag="blue", other=1)
        player.step()
        assert player.one("command.issued", "drain").payload["context"]["workload"] == {"pg": "main", "tag": "blue"}

    def test_a_fan_out_without_a_limit_has_several_slots(self) -> None:
        assert opened(book(fanout([1]))).payload["slots"] == 8
        assert opened(book(fanout([1], max_in_flight=1))).payload["slots"] == 1

    def test_a_transfer_is_a_stage_only_by_itself(self) -> None:
        task = {"kind": "transfer", "source": {"type": "duckdb", "query": "q"},
                "target": {"type": "duckdb", "table": "t"}, "partitions": "{{ n }}", "by": "id",
                "chunk_size": 100}  # fmt: skip
        payload = opened(book({"step": "move", "tool": task}), n=3).payload
        assert payload["source"] == {"transfer": {"partitions": 3, "by": ["id"]}}
        assert (payload["kind"], payload["slots"], payload["frame_policy"]["max_rows"]) == ("transfer", 3, 100)
        player = Player(book({"step": "move", "tool": {**task, "set": {"a": 1}}}))
        player.start()
        assert "stage.opened" not in player.types

    def test_admission_and_the_final_step_are_noted(self) -> None:
        admit = {"rules": [{"when": "{{ 1 / 0 }}", "then": {"allow": False}}]}
        document = book({**cursor(), "spec": {"policy": {"admit": admit}}}, final_step="drain", entry_step="drain")
        player = Player(document)
        player.start()
        assert player.one("loop.opened").payload["warnings"]
        document = book(step("a"), cursor(), final_step="drain", entry_step="a")
        played = play(document)
        assert played.one("loop.opened").payload["final"]
        assert played.status == "COMPLETED"


class TestDatasets:
    @pytest.mark.parametrize(
        ("items", "expected"),
        [
            ([1, 2], [1, 2]),
            ([], []),
            ("[]", []),
            ("{{ rows }}", [{"a": 1}]),
            ("{{ range(2) }}", [0, 1]),
            ("{{ nowhere | default([]) }}", []),
            ("{{ ref }}", REFERENCE),
            ("{{ made }}", REFERENCE),
            ("{{ named }}", "noetl://t/p/datasets/x"),
            ("{{ table }}", [{"a": 1}]),
            (" data/{{ day }}/*.parquet ", "data/1/*.parquet"),
            ("[a-c]*.csv", "[a-c]*.csv"),
            ({"path": "data/{{ day }}.csv", "on_missing": "skip"}, {"path": "data/1.csv", "on_missing": "skip"}),
            ({"postgres": {"auth": "pg", "query": "SELECT 1"}}, {"postgres": {"auth": "pg", "query": "SELECT 1"}}),
        ],
    )
    def test_are_named_never_read(self, items: Any, expected: Any) -> None:
        given: dict[str, Any] = {
            "rows": [{"a": 1}], "ref": REFERENCE, "day": 1, "made": {"ref": REFERENCE, "rows": 9, "preview": []},
            "named": {"ref": "noetl://t/p/datasets/x", "rows": 9}, "table": {"rows": [{"a": 1}], "columns": ["a"]},
        }  # fmt: skip
        assert dataset(items, **given) == expected

    def test_how_it_is_cut_is_recorded(self) -> None:
        assert opened(book(fanout([1], partitions="{{ n }}")), n="4").payload["source"] == {
            "input": [1],
            "partitions": 4,
        }
        assert opened(book(fanout([1], by=["a", "b"]))).payload["source"] == {"input": [1], "by": ["a", "b"]}

    def test_the_result_of_an_earlier_stage_names_its_stage(self) -> None:
        document = book(fanout([1], "again"), fanout("{{ score.ref }}", name="again"))
        player = Player(document)
        player.start()
        player.step()
        first, second = player.of("stage.opened")
        assert second.payload["parent_stage_id"] == first.event_id
        assert second.payload["source"]["input"]["ref"] == f"noetl://t/p/frames/{first.event_id}"


class TestKeptElsewhere:
    """A result that is too large for its event is run over where it is."""

    def loaded(self, items: Any, **result: Any) -> Any:
        document = book(step("load", "score"), fanout(items))
        player = Player(document, {"load": Said(result={"row_count": 3}, reference=REFERENCE, **result)})
        player.start()
        player.step()
        return player.one("stage.opened").payload["source"]["input"] if player.of("stage.opened") else player

    @pytest.mark.parametrize(
        ("items", "path"),
        [("{{ load }}", []), ("{{ load.rows }}", ["rows"]), ("{{ load.data.rows }}", ["data", "rows"])],
    )
    def test_it_is_referred_to(self, items: str, path: list[str]) -> None:
        assert self.loaded(items) == {"step": "load", "path": path}

    def test_what_the_event_has_kept_is_taken_from_there(self) -> None:
        assert self.loaded("{{ load._ref }}") == REFERENCE["ref"]

    def test_loop_results_that_are_about_to_be_stored_are_referred_to(self) -> None:
        class Results(LazyResults):
            reference = REFERENCE

            def __len__(self) -> int:
                return 1

            def __getitem__(self, place: Any) -> Any:
                raise AssertionError("nobody may read it")

        document = book(
            step("load", "score", loop={"in": [1], "iterator": "i"}), fanout("{{ load.results }}"), entry_step="load"
        )
        engine, control = Engine(document), Control(execution_id=7)
        engine.start(control, {"workload": {}}, Known(now=NOW))
        (command_id,) = control.commands
        facts = engine.report(control, Report(command_id=command_id), Known(now=NOW, loop_results=Results()))
        (stage,) = [fact for fact in facts if fact.event_type == "stage.opened"]
        assert stage.payload["source"]["input"] == {"step": "load", "path": ["results"]}

    def test_the_shell_does_not_bring_it(self) -> None:
        result = {"context": {"row_count": 3}, "reference": REFERENCE}
        for items, wanted in [("{{ load.rows }}", False), ("{{ load }}", False), ("{{ load.ref }}", True),
                              ("{{ load.rows[:5] }}", True)]:  # fmt: skip
            document = book(step("load", "score"), fanout(items))
            assert Reads(document).more_than("load", result) is wanted, items
        document = book(queried("report"), reduced("load"))
        assert Reads(document).more_than("load", result)

    def test_a_lookup_is_told_from_an_expression(self) -> None:
        assert looked_up("{{ a.b }}") == ("a", "b")
        assert looked_up(" {{ a }} ") == ("a",)
        assert [looked_up(text) for text in ("{{ a }}x", "{{ a + 1 }}", "a", 5)] == [None] * 4


class TestRefusals:
    """An invalid setting, or a dataset that is not there, fails the step run: it never runs over nothing."""

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ({"frame": {"max_rows": "{{ 0 }}"}}, "frame.max_rows: '0' must be a whole number of at least 1"),
            ({"frame": {"max_rows": "{{ nowhere }}"}}, "frame.max_rows: 'None' must be"),
            ({"frame": {"process": "{{ 'cell' }}"}}, "frame.process: 'cell' must be row or frame"),
            ({"frame": {"lease_seconds": "{{ 30 }}"}}, "frame.heartbeat_seconds: 30 must be below lease_seconds, 30"),
            ({"max_in_flight": "{{ 5000 }}"}, "loop.spec.max_in_flight: '5000' must be a whole number from 1 to 4096"),
            ({"max_in_flight": "{{ 1 / 0 }}"}, "loop.spec.max_in_flight: "),
            ({"options": {"max_iterations": "{{ -1 }}"}}, "cursor.options.max_iterations: '-1' must be"),
        ],
    )
    def test_a_setting_that_is_out_of_bounds(self, spec: dict[str, Any], words: str) -> None:
        played = play(book(cursor(**spec)))
        assert played.status == "FAILED"
        failure = played.end.payload["error"]
        assert failure["kind"] == "schema"
        assert failure["message"].startswith(f"step 'drain': {words}")
        assert played.events("drain") == ["loop.opened", "step.enter", "loop.done", "step.exit"]

    @pytest.mark.parametrize("items", ["{{ load.ref }}", "{{ none }}", "{{ '' }}", "{{ 5 }}", "{{ {'pth': 'x'} }}",
                                       "{{ {'path': 1, 'csv': 2} }}", "{{ {'a': 1} }}"])  # fmt: skip
    def test_a_dataset_that_is_none(self, items: Any) -> None:
        played = play(book(fanout(items)))
        assert played.status == "FAILED"
        assert played.end.payload["error"]["code"] in ("TEMPLATE_UNDEFINED", "STAGE_INPUT")
        assert "score" in played.end.payload["error"]["message"]
        assert "stage.opened" not in played.types

    def test_it_is_routed_like_any_failure(self) -> None:
        assert play(book(fanout("{{ load.ref }}", "b", on_error("a")), step("a"), step("b"))).entered == ["score", "a"]

    def test_a_reduce_of_a_step_that_has_not_run(self) -> None:
        document = book(reduced("score", on_error("a")), fanout([1]), step("a"), entry_step="report")
        played = play(document)
        assert played.events("report") == ["step.enter", "call.error", "step.exit"]
        assert played.one("call.error").payload["error"]["message"] == (
            "step 'report': reduce.from: step 'score' has not run"
        )
        assert played.result("report")["status"] == "error"
        assert played.entered == ["report", "a"]

    def test_a_reduce_of_a_result_without_a_reference(self) -> None:
        document = book(queried("report"), reduced("load"))
        played = play(document, {"load": {"rows": 1}})
        assert played.end.payload["error"]["message"].endswith("the result of step 'load' has no `ref`")

    def test_a_refused_run_counts_and_clears_what_was_before(self) -> None:
        again = arc("report", "{{ not ctx.again }}", again=True)
        document = book(queried("report"), reduced("load", again))
        played = play(document, {"load": {"ref": REFERENCE}})
        assert played.control.steps["report"].run == 2
        document = book(reduced("score", arc("report", "{{ (ctx.n or 0) < 2 }}", n="{{ (ctx.n or 0) + 1 }}")),
                        fanout([1]), entry_step="report")  # fmt: skip
        played = play(document)
        assert [fact.payload["run"] for fact in played.of("step.enter")] == [1, 2, 3]


class TestReduce:
    def test_names_the_stage_and_the_result_it_reads(self) -> None:
        player = Player(book(fanout([1], "report"), reduced("score", by=["region"])))
        player.start()
        player.step()
        first, second = player.of("stage.opened")
        groups = second.payload["source"]["groups"]
        assert (groups["step"], groups["stage_id"]) == ("score", first.event_id)
        assert groups["input"]["ref"] == f"noetl://t/p/frames/{first.event_id}"
        assert second.payload["source"]["by"] == ["region"]
        assert (second.payload["kind"], second.payload["parent_stage_id"]) == ("reduce", first.event_id)
        assert "execution_id" not in groups

    def test_a_cursor_loop_has_frames_and_no_reference(self) -> None:
        player = Player(book(cursor("report"), reduced("drain")))
        player.start()
        player.step()
        source = player.one("stage.opened", "report").payload["source"]
        assert source == {
            "groups": {"step": "drain", "stage_id": player.one("stage.opened", "drain").event_id},
            "by": [],
        }

    def test_a_spark_task_has_a_reference_and_no_frames(self) -> None:
        document = book(queried("report"), reduced("load"))
        player = Player(document, {"load": {"ref": REFERENCE}})
        player.start()
        player.step()
        assert player.one("stage.opened").payload["source"] == {
            "groups": {"step": "load", "input": REFERENCE},
            "by": [],
        }

    def test_it_ends_like_any_call(self) -> None:
        document = book(fanout([1], "report"), reduced("score", arc("a", "{{ event.name == 'call.done' }}")), step("a"))
        played = play(document)
        assert played.entered == ["score", "report", "a"]
        assert played.events("report") == [
            "stage.opened", "command.issued", "command.claimed", "command.started", "step.enter", "stage.closed",
            "call.done", "step.exit", "command.completed",
        ]  # fmt: skip
        failed = play(document, {"report": error("no")})
        assert failed.one("call.error").payload["result"]["context"]["status"] == "error"
        assert failed.status == "FAILED"


class TestEnd:
    def test_in_this_order(self) -> None:
        played = play(book(cursor()))
        assert played.events("drain") == [
            "loop.opened", "stage.opened", "command.issued", "command.claimed", "command.started", "step.enter",
            "stage.closed", "loop.done", "step.exit", "command.completed",
        ]  # fmt: skip
        closed, done = played.one("stage.closed"), played.one("loop.done")
        stage_id = played.one("stage.opened").event_id
        assert closed.stage_id == done.stage_id == stage_id
        assert closed.payload == {"stats": done.payload["stats"], "seal": {"stream_id": "s", "count": 3}}
        assert done.aggregate_id == "drain/1"
        assert not played.control.loops

    def test_arcs_read_counts_results_and_references(self) -> None:
        when = "{{ event.name == 'loop.done' and drain.stats.failed == 0 and event.payload.stats.total == 3 }}"
        assert play(book(cursor(arc("a", when)), step("a"))).entered == ["drain", "a"]
        when = (
            "{{ score.frames == 1 and score.ref.kind == 'result_ref' and output.status == 'ok' and result.rows == 3 }}"
        )
        assert play(book(fanout([1], arc("a", when)), step("a"))).entered == ["score", "a"]

    def test_the_result_of_a_cursor_has_an_entry_per_slot_once_in_the_log(self) -> None:
        played = play(book(cursor()), {"drain": lambda player, name, _: doubled(player, name)})
        assert set(played.one("loop.done").payload["result"]["context"]) == {"results", "stats", "count"}
        result = played.result("drain")
        assert result["data"] == result["results"]
        assert result["results"][0]["processed"] == result["count"] == 3

    def test_a_result_that_is_kept_elsewhere_is_referred_to(self) -> None:
        played = play(book(cursor()), {"drain": lambda player, name, _: doubled(player, name, reference=REFERENCE)})
        assert played.one("loop.done").payload["result"]["reference"] == REFERENCE

    @pytest.mark.parametrize(("failure", "status"), [(None, "COMPLETED"), ("fail_at_end", "FAILED")])
    def test_failed_rows_count_by_the_mode_of_failure(self, failure: str | None, status: str) -> None:
        played = play(book(cursor(failure=failure)), {"drain": error("row 7")})
        assert played.status == status
        assert played.one("loop.done").payload["stats"]["failed"] == 3
        ended = "command.failed" if status == "FAILED" else "command.completed"
        assert (played.one("stage.closed").status, played.types.count(ended)) == (status, 1)
        if status == "FAILED":
            assert played.one("stage.closed").payload["error"]["message"] == "row 7"
            assert set(played.result("drain")) == {"results", "stats", "count", "data"}

    def test_a_failed_fan_out_is_routed_as_a_loop(self) -> None:
        when = "{{ event.name == 'loop.done' and output.status == 'error' and error.message == 'row 7' }}"
        played = play(book(fanout([1], arc("a", when)), step("a")), {"score": error("row 7")})
        assert (played.status, played.entered) == ("COMPLETED", ["score", "a"])

    def test_assignments_of_frames_stand_in_the_event_that_closes_the_stage(self) -> None:
        answer = {"drain": Said(result={}, set={"ctx.seen": 3, "step.k": 1})}
        played = play(book(cursor(arc("a", "{{ ctx.seen == 3 and step.k == 1 }}")), step("a")), answer)
        assert played.entered == ["drain", "a"]
        assert played.one("stage.closed").payload["set"] == {"ctx.seen": 3, "step.k": 1}
        assert "set" not in played.one("loop.done").payload

    def test_what_else_is_told_stands_in_the_end_of_the_loop(self) -> None:
        played = play(book(cursor()), {"drain": lambda player, name, _: doubled(player, name, warnings=["w"])})
        assert played.one("loop.done").payload["warnings"] == ["w"]
        assert "stage" not in played.one("loop.done").payload

    def test_one_that_nobody_could_begin_is_closed_all_the_same(self) -> None:
        player = Player(book(cursor(failure="fail_fast")))
        player.start()
        (command_id,) = player.control.commands
        player.say(Report(command_id=command_id, error={"code": "X", "message": "m", "kind": "auth"}))
        assert player.one("stage.closed").payload["stats"] == {"total": 0, "success": 0, "failed": 0}
        assert player.result("drain") == {"results": [], "stats": player.one("stage.closed").payload["stats"],
                                          "count": 0, "data": []}  # fmt: skip
        assert player.status == "FAILED"

    def test_only_the_first_report_counts(self) -> None:
        player = Player(book(cursor()))
        player.start()
        (command_id,) = player.control.commands
        player.step()
        assert player.say(Report(command_id=command_id)) == []

    def test_the_value_that_is_stored_of_a_failed_loop_has_the_shape_of_any(self) -> None:
        problem = {"code": "X", "message": "m"}
        looped = Report(command_id=1, result={"results": []}, error=problem, detail={"stage": {"kind": "loop"}})
        assert recorded_value(looped) == {"results": []}
        grouped = Report(command_id=1, result={"rows": 1}, error=problem, detail={"stage": {"kind": "reduce"}})
        assert recorded_value(grouped) == {"rows": 1, "error": problem, "status": "error"}


def doubled(player: Player, name: str, reference: Any = None, **detail: Any) -> Said:
    """What a keeper says that has put `data` beside `results`."""
    (command,) = player.control.commands.values()
    said = kept(player.document.steps[name], command.stage_id, {})
    result = {**said.result, "data": said.result["results"]}
    return Said(result=result, detail={**said.detail, **detail}, reference=reference)


class TestEpochs:
    def again(self, rounds: int, failure: str = "best_effort") -> Playbook:
        back = arc("drain", f"{{{{ ctx.n < {rounds} }}}}")
        return book({**cursor(back, failure=failure), "set": {"ctx.n": "{{ (ctx.n or 0) + 1 }}"}})

    def test_each_entry_opens_a_stage_of_its_own(self) -> None:
        played = play(self.again(3))
        assert [fact.payload["loop_id"] for fact in played.of("stage.opened")] == ["drain/1", "drain/2", "drain/3"]
        assert len({fact.event_id for fact in played.of("stage.opened")}) == 3
        assert [fact.payload["run"] for fact in played.of("command.issued")] == [1, 2, 3]

    def test_a_fourth_after_three_without_a_success_is_stalled(self) -> None:
        played = play(self.again(4), {"drain": error("no")})
        assert len(played.of("stage.opened")) == 3
        assert played.one("loop.stalled").aggregate_id == "drain/4"
        assert played.of("loop.done")[3].payload["error"]["code"] == "LOOP_STALLED"

    def test_empty_ones_and_successes_begin_the_count_anew(self) -> None:
        def mostly(player: Player, name: str, _: int | None) -> Any:
            if len(player.runs) % 3:
                return error("no")
            (command,) = player.control.commands.values()
            return kept(player.document.steps[name], command.stage_id, {}, rows=0)

        assert "loop.stalled" not in play(self.again(9), {"drain": mostly}).types


class TestCancelled:
    def test_a_stage_is_sealed_after_the_end(self) -> None:
        player = Player(book(cursor("a"), step("a")), {"drain": Said(result={}, set={"ctx.seen": 1})})
        player.start()
        player.cancel()
        player.go_on()
        assert player.types[-5:] == [
            "playbook.cancelled", "command.claimed", "command.started", "stage.closed", "command.cancelled",
        ]  # fmt: skip
        closed = player.one("stage.closed")
        assert (closed.status, closed.payload["seal"]["count"]) == ("CANCELLED", 3)
        assert "set" not in player.one("command.cancelled").payload
        assert player.status == "CANCELLED"
        assert not player.control.commands

    def test_a_stage_in_flight_beside_a_failure_ends_and_routes_nothing(self) -> None:
        document = book(step("start", "drain", "b", kind="noop", mode="inclusive"), cursor("a"), step("b"), step("a"))
        player = Player(document, {"b": error("no")})
        player.start()
        player.finish("b")
        assert player.status == "RUNNING"
        player.go_on()
        assert player.status == "FAILED"
        assert "a" not in player.entered
        assert player.one("stage.closed").status == "COMPLETED"
