"""A fork goes on from where its source stood when it last entered a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noetl.engine.control import Control
from noetl.engine.fork import Fork, Harvest, is_entry
from noetl.engine.scope import Known
from noetl.playbook.document import Playbook
from tests.unit.engine.play import NOW, Player, Said, arc, book, error, on_error, play, step
from tests.unit.engine.test_invariants import BACK


def plan(source: Player, name: str, document: Playbook | None = None) -> Fork:
    """The fork that begins at a step's last run, or at a step that never ran."""
    entries = [fact.event_id for fact in source.log if is_entry(fact, name)]
    harvest = Harvest(77, document or source.document, name, entries[-1] if entries else None)
    for fact in source.log:
        harvest.take(fact)
    return harvest.fork()


def begin(source: Player, name: str, answers: Mapping[str, Any] | None = None, seed: int | None = None) -> Player:
    """A fork that has begun."""
    fork = plan(source, name)
    player = Player(source.document, answers, seed)
    player.control, player.replayed = Control(execution_id=78), Control(execution_id=78)
    opening = {"path": "t", "workload": source.control.workload, "ctx": {}}
    player._take(player.engine.fork(player.control, opening, fork, Known(now=NOW)))
    return player


def fork(source: Player, name: str, answers: Mapping[str, Any] | None = None) -> Player:
    """A fork played to its end."""
    return begin(source, name, answers).go_on()


CHAIN = (step("a", arc("b", got="{{ result }}")), step("b", "c", set={"ctx.b": "{{ result }}"}), step("c"))


def test_a_failed_step_is_run_again_and_what_came_before_is_adopted() -> None:
    source = play(book(*CHAIN), {"a": 1, "b": error()})
    forked = fork(source, "b", {"a": 99, "b": 2, "c": 3})
    assert forked.types[:4] == ["playbook.initialized", "step.adopted", "workflow.initialized", "command.issued"]
    assert (forked.status, forked.runs) == ("COMPLETED", ["b", "c"])
    assert [forked.result(name) for name in "abc"] == [1, 2, 3]
    assert forked.ctx == {"got": 1, "b": 2}


def test_a_fork_says_where_it_comes_from() -> None:
    source = play(book(*CHAIN), {"a": 1, "b": error()})
    forked = fork(source, "b")
    before = source.of("command.issued", "b")[0].event_id - 1
    assert forked.log[0].payload["forked_from"] == {"execution_id": 77, "event_id": before, "step": "b"}
    adopted = forked.one("step.adopted")
    assert (adopted.node_name, adopted.status) == ("a", "COMPLETED")
    assert adopted.payload["source"] == {"execution_id": 77, "event_id": source.of("call.done", "a")[0].event_id}
    assert adopted.payload["result"] == {"status": "ok", "context": 1}
    assert forked.one("workflow.initialized").node_name == "b"


def test_the_step_sees_who_sent_the_token_then() -> None:
    document = book(
        step("a", "b"),
        step("b", kind="noop", result={"from": "{{ result.n }}"}),
    )
    source = play(document, {"a": {"n": 7}})
    assert fork(source, "b").result("b") == {"from": 7}


def test_ctx_is_what_it_was_when_the_step_was_entered() -> None:
    steps = (
        step("a", "b", set={"ctx.n": 1}),
        step("b", "c", set={"ctx.n": 2, "ctx.b": True}),
        step("c", set={"ctx.n": 3}),
    )
    source = play(book(*steps), {})
    assert source.ctx == {"n": 3, "b": True}
    assert begin(source, "b").ctx == {"n": 1}
    assert begin(source, "c").ctx == {"n": 2, "b": True}


def test_a_failure_that_was_handled_is_adopted_as_a_failure() -> None:
    document = book(
        step("a", on_error("mend")), step("mend", "b"), step("b", arc("c", "{{ a.status == 'error' }}")), step("c")
    )
    source = play(document, {"a": error("no luck")})
    forked = fork(source, "b")
    assert forked.of("step.adopted", "a")[0].status == "FAILED"
    assert (forked.status, forked.runs) == ("COMPLETED", ["b", "c"])
    assert forked.control.steps["a"].error == source.control.steps["a"].error


def test_the_last_of_several_runs_is_the_one_that_counts() -> None:
    document = book(
        step("a", "b"),
        step("b", arc("a", "{{ (ctx.n or 0) < 2 }}", n="{{ (ctx.n or 0) + 1 }}"), arc("c", True)),
        step("c"),
    )
    source = play(document, {})
    assert source.runs == ["a", "b", "a", "b", "a", "b", "c"]
    forked = fork(source, "a")
    assert forked.runs == ["a", "b", "c"]
    assert forked.control.steps["a"].run == 3


def test_a_loop_is_run_whole() -> None:
    each = step("each", "end", loop={"in": [1, 2, 3], "iterator": "n"})
    answers = {"each": lambda player, name, index: error() if index == 2 else index}
    source = play(book(step("a", "each"), each, step("end")), answers)
    assert source.status == "FAILED"
    forked = fork(source, "each", {"each": lambda player, name, index: index * 10})
    assert forked.runs == ["each", "each", "each", "end"]
    assert forked.result("each")["results"] == [0, 10, 20]


def test_an_adopted_loop_has_its_results() -> None:
    each = step("each", "end", loop={"in": [1, 2], "iterator": "n"})
    document = book(each, step("end", kind="noop", result="{{ each.data | length }}"))
    source = play(document, {"each": lambda player, name, index: index})
    forked = fork(source, "end")
    assert (forked.runs, forked.result("end")) == ([], 2)
    assert forked.control.steps["each"].event_name == "loop.done"


def test_a_stalled_loop_may_be_tried_again() -> None:
    each = step("each", arc("each", "{{ output.error.code != 'LOOP_STALLED' }}"), loop={"in": [1], "iterator": "n"})
    source = play(book(each), {"each": error()})
    assert source.control.steps["each"].error["code"] == "LOOP_STALLED"  # type: ignore[index]
    forked = begin(source, "each", {"each": 1})
    forked.step()
    assert forked.of("loop.done")[0].status == "COMPLETED"


FAN = (
    step("start", "a", "b", mode="inclusive", kind="noop"),
    step("a", "join", set={"ctx.a": "{{ result }}"}),
    step("b", "join"),
    step("join", kind="noop", result=["{{ a }}", "{{ b }}", "{{ ctx.a }}"]),
)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_branch_beside_a_failed_step_is_adopted_whenever_it_ended(order: str) -> None:
    source = Player(book(*FAN), {"a": 1, "b": error()})
    source.start()
    for name in order:
        source.finish(name)
    assert source.status == "FAILED"
    assert plan(source, "b").warnings == ()
    forked = begin(source, "b", {"b": 2}).go_on()
    assert (forked.status, forked.runs, forked.result("join")) == ("COMPLETED", ["b"], [1, 2, 1])


def test_a_branch_that_stopped_because_of_the_failure_is_warned_about() -> None:
    document = book(step("start", "a", "b", mode="inclusive", kind="noop"), step("a", "more"), step("b"), step("more"))
    source = Player(document, {"b": error()})
    source.start()
    source.finish("b")
    source.finish("a")
    assert plan(source, "b").warnings == (
        "a branch beside 'b' had come to 'a', and is not gone on with; to run every branch again, begin at 'start'",
    )


def test_a_branch_that_had_not_ended_is_warned_about() -> None:
    source = Player(book(*FAN), {"b": error()})
    source.start()
    source.finish("b")
    source.cancel()
    forked = begin(source, "b")
    (warning,) = forked.one("workflow.initialized").payload["warnings"]
    assert "'a'" in warning
    assert "begin at 'start'" in warning
    assert not forked.of("step.adopted", "a")


def test_a_step_that_failed_beside_is_neither_adopted_nor_forgotten() -> None:
    source = Player(book(*FAN), {"a": error(), "b": error()})
    source.start()
    source.finish("b")
    source.finish("a")
    fork = plan(source, "b")
    assert [one.step for one in fork.steps] == ["start"]
    assert "'a'" in fork.warnings[0]


def test_a_step_after_the_join_finds_both_branches() -> None:
    document = book(*FAN[:3], step("join", "end", kind="noop"), step("end"))
    source = play(document, {"end": error()})
    fork = plan(source, "end")
    assert ({one.step for one in fork.steps}, fork.warnings) == ({"start", "a", "b", "join"}, ())


def test_a_step_that_never_ran_gets_everything() -> None:
    document = book(step("a", arc("b", False), arc("c", True)), step("b"), step("c"))
    source = play(document, {"a": 1, "c": 3})
    forked = fork(source, "b", {"b": 2})
    assert forked.runs == ["b"]
    assert {fact.node_name for fact in forked.of("step.adopted")} == {"a", "c"}
    entered = forked.one("workflow.initialized").payload["moves"][0]
    assert entered["sender"] == "a", "the one with an arc to it"


def test_behind_a_failure_the_failed_step_can_be_left_out() -> None:
    source = play(book(*CHAIN), {"b": error()})
    forked = fork(source, "c")
    assert (forked.status, forked.runs) == ("COMPLETED", ["c"])
    assert forked.control.steps["b"].outcome == "error"


def test_a_final_step_that_failed_is_run_again() -> None:
    document = book(step("a"), step("last"), final_step="last")
    source = play(document, {"last": error()})
    assert source.status == "FAILED"
    forked = fork(source, "last")
    assert (forked.status, forked.runs) == ("COMPLETED", ["last"])
    assert not forked.one("workflow.initialized").payload.get("moves")


def test_a_final_step_alone_does_not_mend_what_failed_before_it() -> None:
    document = book(step("a"), step("last"), final_step="last")
    source = play(document, {"a": error("broken")})
    forked = fork(source, "last")
    assert (forked.status, forked.runs) == ("FAILED", ["last"])
    assert forked.end.payload["error"]["message"] == "broken"
    assert forked.control.failed_step == "a"


def test_a_step_that_is_final_no_more_is_a_step_like_any_other() -> None:
    source = play(book(step("a"), step("last"), final_step="last"), {"a": error()})
    fork = plan(source, "last", book(step("a", "last"), step("last")))
    assert not fork.final
    assert [one.unhandled for one in fork.steps] == [None]


def test_a_final_step_runs_after_the_retried_one() -> None:
    document = book(step("a"), step("last"), final_step="last")
    source = play(document, {"a": error()})
    forked = fork(source, "a")
    assert (forked.status, forked.runs) == ("COMPLETED", ["a", "last"])


def test_a_fork_of_a_fork_adopts_what_was_adopted() -> None:
    source = play(book(*CHAIN), {"a": 1, "b": error()})
    middle = fork(source, "b", {"b": 2, "c": error()})
    forked = fork(middle, "c", {"c": 3})
    assert [forked.result(name) for name in "abc"] == [1, 2, 3]
    assert forked.runs == ["c"]


def test_where_a_large_result_is_goes_with_it() -> None:
    reference = {"ref": "noetl://x", "uri": "noetl://x"}
    source = play(book(*CHAIN), {"a": Said(result={"n": 1}, reference=reference), "b": error()})
    assert fork(source, "b").control.steps["a"].result["reference"] == reference


def test_admission_is_asked_again() -> None:
    rule = {"when": "{{ result.go }}", "then": {"allow": False}}
    document = book(step("a", "b"), step("b", spec={"policy": {"admit": {"rules": [rule]}}}))
    source = play(document, {"a": {"go": True}})
    forked = fork(source, "b")
    assert (forked.status, forked.runs) == ("COMPLETED", [])
    assert forked.one("step.skipped").node_name == "b"
    assert forked.control.last_step == "a"


@st.composite
def walks(draw: st.DrawFn) -> Playbook:
    """Documents with one token: branches, ways back, failures that are handled, loops, assignments."""
    names = [f"s{number}" for number in range(draw(st.integers(2, 7)))]
    steps = []
    for place, name in enumerate(names):
        arcs = []
        for target in draw(st.lists(st.integers(0, len(names) - 1), max_size=3)):
            if target <= place:
                arcs.append(arc(names[target], BACK, back="{{ (ctx.back or 0) + 1 }}"))
            else:
                when = draw(
                    st.sampled_from([None, "{{ ctx.flag }}", "{{ not ctx.flag }}", "{{ output.status == 'error' }}"])
                )
                arcs.append(arc(names[target], when, last=name))
        more: dict[str, Any] = {"kind": draw(st.sampled_from(["python", "noop"]))}
        if draw(st.integers(0, 4)) == 0:
            more["loop"] = {"in": [1, 2], "iterator": "n"}
        if draw(st.booleans()):
            more["set"] = {"ctx.flag": "{{ not ctx.flag }}"}
        steps.append(step(name, *arcs, **more))
    spec: dict[str, Any] = {"final_step": draw(st.sampled_from(names))} if draw(st.booleans()) else {}
    return book(*steps, **spec)


@given(walks(), st.sets(st.integers(0, 6), max_size=2))
def test_a_fork_at_any_step_ends_as_the_source_did(document: Playbook, failing: set[int]) -> None:
    def answer(player: Player, name: str, index: int | None) -> Any:
        said = {"name": name, "run": player.control.steps[name].run, "flag": player.ctx.get("flag")}
        return error(name) if int(name[1:]) in failing else said

    answers = dict.fromkeys(document.steps, answer)
    source = play(document, answers)
    assume(source.status in ("COMPLETED", "FAILED"))
    assume("LOOP_STALLED" not in str(source.control.steps))
    for name in {fact.node_name for fact in source.log if is_entry(fact, fact.node_name or "")}:
        assert name is not None
        forked = fork(source, name, answers)
        assert forked.status == source.status
        assert forked.ctx == source.ctx
        assert forked.end.payload == source.end.payload
        assert {step: state.result for step, state in forked.control.steps.items()} == {
            step: state.result for step, state in source.control.steps.items()
        }


@st.composite
def lattices(draw: st.DrawFn) -> Playbook:
    """Documents that fan out and join at will: every step sends tokens along all of its arcs, onwards only."""
    names = [f"s{number}" for number in range(draw(st.integers(2, 8)))]
    steps = []
    for place, name in enumerate(names):
        later = names[place + 1 :]
        targets = sorted(draw(st.sets(st.sampled_from(later), max_size=3))) if later else []
        steps.append(step(name, *targets, kind=draw(st.sampled_from(["python", "python", "noop"])), mode="inclusive")
                     if targets else step(name))  # fmt: skip
    return book(*steps)


def before(document: Playbook, name: str) -> list[str]:
    """The steps with an arc to this one."""
    return [
        other.name for other in document.steps.values() if other.router for to in other.router.arcs if to.step == name
    ]


def told(player: Player, name: str, _: int | None) -> Any:
    """A result that depends on those of all steps before, as a join's does."""
    return [name, *(player.result(other) for other in before(player.document, name) if other in player.control.steps)]


@given(lattices(), st.integers(0, 2**16))
def test_a_fork_inside_a_fan_out_comes_to_the_same_results(document: Playbook, seed: int) -> None:
    answers = dict.fromkeys(document.steps, told)
    source = play(document, answers, seed=seed)
    assert source.status == "COMPLETED"
    for name in source.control.steps:
        forked = begin(source, name, answers, seed).go_on()
        assert forked.one("workflow.initialized").payload.get("warnings") is None
        assert forked.status == "COMPLETED"
        assert {step: state.result for step, state in forked.control.steps.items()} == {
            step: state.result for step, state in source.control.steps.items()
        }
        assert max(Counter(forked.entered).values()) == 1


@given(lattices(), st.integers(0, 2**16), st.integers(0, 7))
def test_a_mended_fork_comes_to_what_a_run_without_the_failure_does(
    document: Playbook, seed: int, failing: int
) -> None:
    good = dict.fromkeys(document.steps, told)
    wanted = play(document, good, seed=seed)
    name = f"s{failing}"
    assume(name in wanted.control.steps and document.steps[name].tasks[0].kind != "noop")
    source = play(document, {**good, name: error()}, seed=seed)
    assert source.control.failed_step == name
    forked = begin(source, name, good, seed).go_on()
    assert forked.status == "COMPLETED"
    if forked.one("workflow.initialized").payload.get("warnings") is None:
        assert {step: state.result for step, state in forked.control.steps.items()} == {
            step: state.result for step, state in wanted.control.steps.items()
        }


CURSOR = {
    "cursor": {"kind": "postgres", "auth": "pg", "claim": "SELECT 1"},
    "iterator": "todo",
    "spec": {"mode": "cursor"},
}


def test_a_stage_is_adopted_with_its_frames() -> None:
    document = book(step("drain", "sum", loop=CURSOR), step("sum", "a", reduce={"from": "drain"}), step("a"))
    source = play(document, {"drain": Said(result={}, set={"ctx.seen": 1}), "sum": error()})
    forked = begin(source, "sum")
    stage = source.one("stage.opened", "drain").event_id
    assert forked.one("step.adopted").payload["stage"] == {"execution_id": 77, "stage_id": stage}
    assert forked.ctx == {"seen": 1}
    opened = forked.one("stage.opened").payload
    assert opened["source"]["groups"] == {"step": "drain", "stage_id": stage, "execution_id": 77}
    assert "parent_stage_id" not in opened
    forked.go_on()
    assert (forked.status, forked.runs) == ("COMPLETED", ["sum", "a"])
    again = begin(forked, "sum")
    assert again.one("step.adopted").payload["stage"] == {"execution_id": 77, "stage_id": stage}


def test_a_stage_that_is_begun_with_is_run_again() -> None:
    back = arc("drain", "{{ not ctx.again }}", again=True)
    document = book(step("a", "drain"), step("drain", back, on_error("a"), loop=CURSOR))
    source = play(document, {})
    assert source.control.steps["drain"].run == 2
    forked = begin(source, "drain")
    assert forked.of("step.adopted", "drain")[0].payload["run"] == 1
    assert forked.one("loop.opened").payload["epoch"] == 2
    assert forked.one("stage.opened").payload["loop_id"] == "drain/2"
    assert forked.go_on().status == "COMPLETED"


def test_a_stage_that_ended_beside_the_step_is_adopted() -> None:
    document = book(
        step("start", "drain", "b", kind="noop", mode="inclusive"),
        step("drain", "join", loop=CURSOR),
        step("b", "join"),
        step("join"),
    )
    source = Player(document, {"drain": Said(result={}, set={"ctx.seen": 1}), "b": error("no")})
    source.start()
    source.finish("drain")
    source.go_on()
    forked = begin(source, "b", {"drain": {}, "b": {}})
    assert forked.of("step.adopted", "drain")[0].payload["event_name"] == "loop.done"
    assert forked.ctx == {"seen": 1}
    assert forked.go_on().status == "COMPLETED"


def test_a_run_that_was_refused_can_be_begun_with() -> None:
    document = book(step("sum", reduce={"from": "drain"}), step("drain", "sum", loop=CURSOR), entry_step="sum")
    source = play(document)
    assert source.status == "FAILED"
    assert is_entry(source.one("step.enter"), "sum")
    assert plan(source, "sum").event_id == source.one("step.enter").event_id - 1
