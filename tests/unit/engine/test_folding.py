"""From a log to control state, without deciding anything again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.engine.control import Control
from noetl.engine.fact import Fact
from noetl.engine.folding import apply
from tests.unit.engine.play import Player, arc, book, error, play, step


def fold(log: list[Fact]) -> Control:
    control = Control(execution_id=77)
    for fact in log:
        apply(control, fact)
    return control


def copied(control: Control) -> Any:
    return msgspec.json.decode(msgspec.json.encode(control))


def fact(event_type: str, step_name: str | None = None, event_id: int = 1, **fields: Any) -> Fact:
    return Fact(event_type=event_type, node_name=step_name, event_id=event_id, **fields)


def test_an_unknown_type_is_passed_over() -> None:
    before = fold([])
    after = fold([fact("tea.served", "start")])
    assert before == after


def test_older_spellings_are_read() -> None:
    played = play(book(step("start")))
    older = {"playbook.initialized": "playbook_started", "playbook.completed": "playbook_completed"}
    log = [msgspec.structs.replace(one, event_type=older.get(one.event_type, one.event_type)) for one in played.log]
    assert fold(log) == played.control


def test_the_first_terminal_event_stands() -> None:
    control = fold([fact("execution.cancelled"), fact("playbook.completed")])
    assert control.ended == "CANCELLED"


def test_the_opening_seeds_workload_ctx_and_caller() -> None:
    opening = {"path": "p", "workload": {"a": 1}, "ctx": {"k": 2}, "parent_execution_id": 5}
    control = fold([fact("playbook.initialized", payload=opening)])
    assert (control.path, control.workload, control.ctx) == ("p", {"a": 1}, {"k": 2})
    assert control.parent_execution_id == 5


def test_a_fold_does_not_change_the_events() -> None:
    document = book(
        step("start", arc("a", n={"deep": 1}), set={"ctx.n": {"deep": 0}}),
        step("a", set={"ctx.n.deep": 2, "ctx.seed.x": 1}),
    )
    player = Player(document)
    player.start(ctx={"seed": {"x": 0}})
    player.go_on()
    before = msgspec.json.encode(player.log)
    fold(player.log)
    fold(player.log)
    assert msgspec.json.encode(player.log) == before


def test_a_command_that_waits_for_a_child_is_suspended_until_it_is_resumed() -> None:
    issued = fact("command.issued", "start", 3, command_id=3, payload={"kind": "pipeline", "run": 1})
    waits = fact("command.suspended", "start", 4, command_id=3, payload={"child_execution_id": 99})
    control = fold([issued, waits])
    assert (control.commands[3].suspended, control.commands[3].child) == (True, 99)
    apply(control, fact("command.resumed", "start", 5, command_id=3))
    assert not control.commands[3].suspended


def test_finished_iterations_are_counts_and_not_results() -> None:
    loop = {"in": list(range(50)), "iterator": "item", "spec": {"mode": "parallel", "max_in_flight": 3}}
    player = Player(book(step("start", loop=loop)), {"start": {"much": "text" * 100}})
    player.start()
    sizes = []
    while len(player.runs) < 45:
        player.step()
        sizes.append(len(msgspec.json.encode(player.control)))
    assert max(sizes) - min(sizes) < 20


@pytest.mark.parametrize("seed", range(5))
def test_the_state_of_any_prefix_of_decisions_is_the_one_it_was_decided_with(seed: int) -> None:
    document = book(
        step("start", "a", "b", mode="inclusive"),
        step("a", arc("join", True)),
        step("b", "join", loop={"in": [1, 2], "iterator": "item"}),
        step("join"),
    )
    player = Player(document, {"a": error()}, seed)
    player.start()
    states = [copied(player.control)]
    while player.step():
        states.append(copied(player.control))
    for end, state in zip(player.ends, states, strict=True):
        assert copied(fold(player.log[:end])) == state
