"""Whether a token may enter (section 2)."""

from __future__ import annotations

from typing import Any

from noetl.playbook.document import Playbook
from tests.unit.engine.play import Player, arc, book, error, on_error, play, step


def admit(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"policy": {"admit": {"mode": "exclusive", "rules": list(rules)}}}


def when(condition: Any, allow: bool) -> dict[str, Any]:
    return {"when": condition, "then": {"allow": allow}}


def otherwise(allow: bool) -> dict[str, Any]:
    return {"else": {"then": {"allow": allow}}}


def guarded(*rules: dict[str, Any]) -> Playbook:
    return book(step("start", "a", "b", mode="inclusive"), step("a", "c", spec=admit(*rules)), step("b"), step("c"))


def entered(played: Player) -> bool:
    return "a" in played.entered


def test_no_rules_allow() -> None:
    assert entered(play(guarded()))


def test_no_match_allows() -> None:
    assert entered(play(guarded(when(False, False))))


def test_the_first_matching_rule_decides() -> None:
    assert entered(play(guarded(when(True, True), when(True, False))))
    assert not entered(play(guarded(when(False, True), when(True, False), otherwise(True))))


def test_else_decides_when_nothing_else_does() -> None:
    assert not entered(play(guarded(when(False, True), otherwise(False))))


def test_a_refusal_is_recorded_and_is_not_a_failure() -> None:
    played = play(guarded(otherwise(False)))
    skipped = played.one("step.skipped")
    assert (skipped.node_name, skipped.status) == ("a", "SKIPPED")
    assert played.status == "COMPLETED"


def test_a_skipped_step_has_no_result_and_its_arcs_are_not_evaluated() -> None:
    played = play(guarded(otherwise(False)))
    assert "a" not in played.control.steps
    assert "c" not in played.entered
    assert not played.of("step.exit", "a")
    assert not played.of("command.issued", "a")


def test_a_step_skipped_the_second_time_keeps_its_result() -> None:
    document = book(
        step("start", arc("start", "{{ not ctx.again }}", again=True), spec=admit(when("{{ ctx.again }}", False)))
    )
    played = play(document, {"start": {"x": 1}})
    assert played.entered == ["start"]
    assert played.result("start") == {"x": 1}


def test_it_sees_what_the_sender_has_left() -> None:
    rule = when("{{ event.step == 'start' and output.data.x == 1 and result.x == 1 and ctx.k == 2 }}", False)
    document = book(step("start", arc("a", k=2)), step("a", spec=admit(rule)))
    assert not entered(play(document, {"start": {"x": 1}}))
    assert entered(play(document, {"start": {"x": 2}}))


def test_it_sees_a_handled_failure() -> None:
    document = book(
        step("start", on_error("a")), step("a", spec=admit(when("{{ event.name == 'call.error' }}", False)))
    )
    assert not entered(play(document, {"start": error()}))


def test_the_first_step_can_be_refused() -> None:
    played = play(book(step("start", spec=admit(otherwise(False)))))
    assert played.status == "COMPLETED"
    assert played.end.payload["final_step"] is None
    assert played.end.payload["result"] == {}


def test_a_condition_that_raises_does_not_match_and_is_logged() -> None:
    played = play(guarded(when("{{ 1 / 0 }}", False)))
    assert entered(played)
    assert "admission rule 0" in played.one("command.issued", "a").payload["warnings"][0]
    refused = play(guarded(when("{{ 1 / 0 }}", True), otherwise(False)))
    assert "admission rule 0" in refused.one("step.skipped").payload["warnings"][0]


def test_it_is_asked_once_for_tokens_that_join() -> None:
    document = book(
        step("start", "a", "b", mode="inclusive", kind="noop"),
        step("a", "join"),
        step("b", "join"),
        step("join", "after", spec=admit(otherwise(False))),
        step("after"),
    )
    played = play(document)
    assert len(played.of("step.skipped")) == 1
    assert played.status == "COMPLETED"


def test_a_loop_is_asked_once_and_not_per_iteration() -> None:
    loop = {"in": [1, 2, 3], "iterator": "item"}
    played = play(book(step("start", loop=loop, spec=admit(otherwise(False)))))
    assert played.types.count("step.skipped") == 1
    assert "loop.opened" not in played.types


def test_the_final_step_can_be_refused_too() -> None:
    played = play(book(step("start"), step("last", spec=admit(otherwise(False))), final_step="last"))
    assert played.one("step.skipped").node_name == "last"
    assert played.status == "COMPLETED"
    assert played.end.payload["result"] == {}
