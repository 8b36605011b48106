"""The slice of context a command carries."""

from __future__ import annotations

from typing import Any

from tests.unit.engine.play import Player, arc, book, play, step


def carried(task: dict[str, Any], **more: Any) -> Any:
    document = book(
        step("start", "a", set={"ctx.k": 1, "ctx.l": 2}),
        step("a", "b"),
        step("b", task=task, **more),
        workload={"w": 1, "v": 2},
    )
    return play(document, {"start": {"s": 1}, "a": {"a": 2}}).one("command.issued", "b").payload.get("context", {})


def test_holds_just_the_names_that_are_used() -> None:
    found = carried({"input": {"x": "{{ w }}", "y": "{{ k }}", "z": "{{ start.s }}"}})
    assert found == {
        "workload": {"w": 1},
        "ctx": {"k": 1},
        "steps": {"start": {"outcome": "ok", "value": {"s": 1}}},
    }


def test_is_absent_when_nothing_is_used() -> None:
    assert carried({}) == {}


def test_holds_all_of_ctx_when_it_is_used_as_a_whole() -> None:
    assert carried({"input": {"x": "{{ ctx }}"}}) == {"ctx": {"k": 1, "l": 2}}


def test_sees_names_in_rules_and_sets() -> None:
    rules = [{"when": "{{ k }}", "then": {"do": "retry", "attempts": "{{ w }}", "set": {"ctx.m": "{{ l }}"}}}]
    found = carried({"spec": {"policy": {"rules": rules}}, "set": {"own": "{{ v }}"}})
    assert found == {"workload": {"w": 1, "v": 2}, "ctx": {"k": 1, "l": 2}}


def test_holds_the_sender_when_its_result_is_read() -> None:
    found = carried({"input": {"x": "{{ result.a }}"}})
    assert found == {"sender": {"step": "a", "outcome": "ok", "value": {"a": 2}}}


def test_of_a_step_that_runs_again_is_without_its_last_result() -> None:
    back = arc("start", "{{ not ctx.again }}", again=True)
    player = Player(book(step("start", back, task={"input": {"x": "{{ start }}", "y": "{{ result }}"}})), {"start": 5})
    player.start()
    player.step()
    assert player.of("command.issued")[1].payload["context"] == {
        "sender": {"step": "start", "outcome": "ok", "value": 5}
    }


def test_sees_names_that_only_say_where_rows_go() -> None:
    task = {"kind": "spark", "code": "def main(spark): ...", "output": {"path": "{{ w }}/{{ start.s }}"}}
    found = carried(task)
    assert found == {"workload": {"w": 1}, "steps": {"start": {"outcome": "ok", "value": {"s": 1}}}}
