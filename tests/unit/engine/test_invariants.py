"""What holds for every document and every order in which commands happen to finish.

Documents are drawn: two to nine steps, arcs forwards and back, both modes, conditions that are constant
or read `ctx`, steps that fail, loops, data stages, admission, a final step. The player has already compared the live
state with the replayed one after each decision.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from noetl.playbook.document import Playbook
from tests.unit.engine.play import TERMINAL, Player, Said, arc, book, error, play, step

FAILED = "{{ output.status == 'error' }}"
GOOD = "{{ output.status == 'ok' }}"
MOST_BACK = 4
BACK = f"{{{{ (ctx.back or 0) < {MOST_BACK} }}}}"
"""Each way back counts, so every drawn document comes to an end."""

FORWARD = [None, None, None, True, False, FAILED, GOOD, "{{ ctx.flag }}", "{{ not ctx.flag }}", "{{ 1 / 0 }}"]
seeds = st.integers(0, 2**16)


@st.composite
def arcs_from(draw: st.DrawFn, place: int, names: list[str]) -> list[dict[str, Any]]:
    found = []
    for target in draw(st.lists(st.integers(0, len(names) - 1), max_size=3)):
        if target <= place:
            found.append(arc(names[target], BACK, back="{{ (ctx.back or 0) + 1 }}"))
        else:
            values = draw(st.sampled_from([{}, {}, {"flag": True}, {"flag": False}]))
            found.append(arc(names[target], draw(st.sampled_from(FORWARD)), **values))
    return found


@st.composite
def parts(draw: st.DrawFn) -> dict[str, Any]:
    """What a step has besides its arcs."""
    more: dict[str, Any] = {"kind": draw(st.sampled_from(["python", "python", "noop"]))}
    if draw(st.integers(0, 3)) == 0:
        mode = draw(st.sampled_from(["sequential", "parallel", "cursor", "fanout"]))
        items = draw(st.sampled_from([[], [1, 2], [1, 2, 3, 4], "{{ nowhere }}", "{{ s0.ref }}"]))
        claims = {"cursor": {"kind": "postgres", "auth": "pg", "claim": "SELECT 1"}}
        more["loop"] = {
            **(claims if mode == "cursor" else {"in": items}),
            "iterator": "item",
            "spec": {
                "mode": mode,
                "max_in_flight": draw(st.integers(1, 3)),
                "policy": {"failure": {"mode": draw(st.sampled_from(["fail_fast", "fail_at_end", "best_effort"]))}},
            },
        }
    if draw(st.integers(0, 6)) == 0:
        rule = {"when": draw(st.sampled_from([True, False, "{{ ctx.flag }}"])), "then": {"allow": draw(st.booleans())}}
        more["spec"] = {"policy": {"admit": {"rules": [rule]}}}
    if draw(st.integers(0, 4)) == 0:
        more["set"] = {"ctx.flag": "{{ not ctx.flag }}"}
    return more


@st.composite
def documents(draw: st.DrawFn) -> Playbook:
    names = [f"s{number}" for number in range(draw(st.integers(2, 9)))]
    steps = []
    for place, name in enumerate(names):
        arcs = draw(arcs_from(place, names))
        router: dict[str, Any] = (
            {"mode": draw(st.sampled_from(["exclusive", "inclusive", "inclusive"]))} if arcs else {}
        )
        if arcs:
            router["on_no_match"] = draw(st.sampled_from(["complete", "quiet"]))
        steps.append(step(name, *arcs, **router, **draw(parts())))
    framed = [one["step"] for one in steps if one.get("loop", {}).get("spec", {}).get("mode") in ("cursor", "fanout")]
    for one in steps:
        if framed and "loop" not in one and draw(st.integers(0, 2)) == 0:
            one["reduce"] = {"from": draw(st.sampled_from(framed))}
    spec: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        spec["final_step"] = draw(st.sampled_from(names))
    if draw(st.integers(0, 5)) == 0:
        spec["no_next_is_error"] = True
    return book(*steps, **spec)


@st.composite
def behaviours(draw: st.DrawFn) -> dict[str, Any]:
    """What each step answers: a function of the step, its run and the index, as a worker's would be."""
    failing = draw(st.sets(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=4))

    def answer(player: Player, name: str, index: int | None) -> Any:
        number, run = int(name[1:]), player.control.steps[name].run
        if (number, (run + (index or 0)) % 4) in failing:
            return error(f"{name} {run} {index}")
        return Said(result={"run": run, "index": index}, set={f"ctx.{name}.last": index})

    return {f"s{number}": answer for number in range(9)}


def check_log(played: Player) -> None:
    terminal = [fact.event_type for fact in played.log if fact.event_type in TERMINAL]
    assert len(terminal) == 1
    assert played.types[-1] == terminal[0]
    assert played.types[-2] == terminal[0].replace("playbook", "workflow")
    assert (played.status == "FAILED") == (played.control.failure is not None)
    enters = Counter(fact.node_name for fact in played.of("step.enter"))
    exits = Counter(fact.node_name for fact in played.of("step.exit"))
    assert enters == exits
    issued = sorted(fact.event_id for fact in played.of("command.issued"))
    ended = [*played.of("command.completed"), *played.of("command.failed")]
    assert issued == sorted(fact.command_id or 0 for fact in ended)
    assert len(played.of("loop.opened")) == len(played.of("loop.done"))
    stages = sorted(fact.event_id for fact in played.of("stage.opened"))
    assert stages == sorted(fact.stage_id or 0 for fact in played.of("stage.closed"))
    assert stages == [fact.stage_id for fact in played.of("command.issued") if fact.payload["kind"] == "stage"]


def check_tokens(played: Player) -> None:
    """Every token that was made has gone, and never twice."""
    live: set[str] = set()
    for fact in played.log:
        for move in fact.payload.get("moves", []):
            if move["op"] in ("enter", "park"):
                assert set(move.get("merged", [])) <= live
                live -= set(move.get("merged", []))
                assert move["token"] not in live
                live.add(move["token"])
            elif move["op"] == "leave":
                live.remove(move["token"])
    assert not live
    assert not played.control.tokens
    assert not played.control.commands
    assert not played.control.loops


def check_runs(played: Player) -> None:
    """One run of a step at a time, each with one enter and one exit in that order."""
    busy: set[str | None] = set()
    for fact in played.log:
        if fact.event_type == "step.enter":
            assert fact.node_name not in busy
            busy.add(fact.node_name)
        elif fact.event_type == "step.exit":
            busy.remove(fact.node_name)
    assert not busy


def check_failure(played: Player) -> None:
    """After an unhandled failure no step starts but the final one."""
    failed = next((place for place, fact in enumerate(played.log) if "unhandled" in fact.payload), None)
    if failed is None:
        return
    for fact in played.log[failed:]:
        if fact.event_type in ("command.issued", "loop.opened"):
            assert fact.payload.get("final"), fact


@given(documents(), behaviours(), seeds)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_every_execution_ends_as_it_should(document: Playbook, answers: dict[str, Any], seed: int) -> None:
    played = play(document, answers, seed=seed)
    check_log(played)
    check_tokens(played)
    check_runs(played)
    check_failure(played)
    final = document.final_step
    if final is not None:
        assert final in played.entered or played.of("step.skipped", final)


@given(documents(), behaviours(), seeds)
@settings(max_examples=60)
def test_the_same_order_gives_the_same_log(document: Playbook, answers: dict[str, Any], seed: int) -> None:
    assert play(document, answers, seed=seed).log == play(document, answers, seed=seed).log


@given(documents(), behaviours(), seeds, st.data())
@settings(max_examples=150)
def test_whoever_takes_over_comes_to_the_same_end(
    document: Playbook, answers: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    whole = play(document, answers, seed=seed)
    assume(len(whole.ends) > 1)
    decisions = data.draw(st.integers(1, len(whole.ends) - 1))
    assert whole.fork(decisions).go_on().log == whole.log


@given(documents(), behaviours(), seeds, st.integers(0, 6))
@settings(max_examples=100)
def test_a_cancelled_one_routes_nothing_more(
    document: Playbook, answers: dict[str, Any], seed: int, reports: int
) -> None:
    player = Player(document, answers, seed)
    player.start()
    for _ in range(reports):
        player.step()
    assume(player.status == "RUNNING")
    busy = len(player.control.commands)
    stages = sum(command.stage_id > 0 for command in player.control.commands.values())
    before = len(player.log)
    player.cancel()
    player.go_on()
    assert Counter(fact.event_type for fact in player.log[before:]) == +Counter(
        {
            "playbook.cancelled": 1,
            "command.claimed": busy,
            "command.started": busy,
            "command.cancelled": busy,
            "stage.closed": stages,
        }
    )
    assert player.cancel() == []


@st.composite
def lattices(draw: st.DrawFn) -> tuple[Playbook, dict[str, Any], dict[str, list[str]]]:
    """A document without ways back, whose conditions are constant: which arcs are taken is known beforehand."""
    names = [f"s{number}" for number in range(draw(st.integers(2, 9)))]
    failing = draw(st.sets(st.sampled_from(names), max_size=3))
    steps, taken = [], dict[str, list[str]]()
    for place, name in enumerate(names):
        targets = draw(st.lists(st.sampled_from(names[place + 1 :]), max_size=4)) if place + 1 < len(names) else []
        whens = [draw(st.sampled_from([True, True, True, False])) for _ in targets]
        mode = draw(st.sampled_from(["inclusive", "inclusive", "exclusive"]))
        chosen = [target for target, when in zip(targets, whens, strict=True) if when]
        if not chosen:
            failing.discard(name)
        kind = "python" if name in failing else draw(st.sampled_from(["python", "noop"]))
        taken[name] = chosen[:1] if mode == "exclusive" else chosen
        arcs = [arc(target, when) for target, when in zip(targets, whens, strict=True)]
        steps.append(step(name, *arcs, kind=kind, **({"mode": mode} if arcs else {})))
    order = draw(st.permutations(steps[1:]))
    answers = {name: error() for name in failing}
    return book(*steps[:1], *order, entry_step="s0"), answers, taken


@given(lattices(), seeds)
@settings(max_examples=400)
def test_without_ways_back_every_step_runs_once_after_all_that_lead_to_it(
    drawn: tuple[Playbook, dict[str, Any], dict[str, list[str]]], seed: int
) -> None:
    document, answers, taken = drawn
    played = play(document, answers, seed=seed)
    reached, waiting = set[str](), ["s0"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += taken[name]
    assert Counter(played.entered) == dict.fromkeys(reached, 1)
    exits = {fact.node_name: place for place, fact in enumerate(played.log) if fact.event_type == "step.exit"}
    enters = {fact.node_name: place for place, fact in enumerate(played.log) if fact.event_type == "step.enter"}
    for name in reached:
        assert all(exits[name] < enters[target] for target in taken[name])
    assert played.status == "COMPLETED"
    assert not played.control.groups


@pytest.mark.parametrize("seed", range(10))
def test_a_wide_join_runs_once_per_round(seed: int) -> None:
    branches = [f"b{number}" for number in range(6)]
    document = book(
        step("start", *branches, mode="inclusive", kind="noop", set={"ctx.round": "{{ (ctx.round or 0) + 1 }}"}),
        *(step(name, f"{name}x") for name in branches),
        *(step(f"{name}x", "join") for name in branches),
        step("join", arc("start", "{{ ctx.round < 4 }}")),
    )
    played = play(document, seed=seed)
    opened = [move for fact in played.log for move in fact.payload.get("moves", []) if move["op"] == "open"]
    assert len(opened) == played.entered.count("join") == 4
