"""What is done to an execution from outside: finalising it, and changing its context."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.control import Control, unassign
from noetl.engine.decide import Engine
from noetl.engine.fact import Fact
from noetl.engine.folding import apply
from noetl.engine.scope import Known
from noetl.playbook.parse import load
from tests.unit.runtime.workshop import as_text, book, step

KNOWN = Known(now="2026-03-01T00:00:00.000000Z")


@pytest.fixture
def running() -> tuple[Engine, Control]:
    engine, control = Engine(load(as_text(book(step("a"))))), Control(execution_id=7)
    engine.start(control, {"path": "t", "ctx": {"k": 1, "deep": {"er": 2}}}, KNOWN)
    return engine, control


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_finalising_ends_with_the_given_status_and_text(running: tuple[Engine, Control], status: str) -> None:
    engine, control = running
    (fact,) = engine.finalize(control, status, "enough", KNOWN)
    assert (fact.event_type, fact.status, fact.node_name) == (f"playbook.{status.lower()}", status, "playbook")
    assert fact.payload["reason"] == "enough"
    assert control.ended == status
    expected = {"kind": "unknown", "code": "FINALIZED", "message": "enough", "retryable": False}
    assert control.failure == (expected if status == "FAILED" else None)
    assert engine.finalize(control, status, "again", KNOWN) == []
    assert engine.patch(control, {"ctx.a": 1}, (), KNOWN) == []


@pytest.mark.parametrize(
    ("values", "unset", "expected"),
    [
        ({"ctx.k": 2}, (), {"k": 2, "deep": {"er": 2}}),
        ({"ctx.deep.est": 3}, (), {"k": 1, "deep": {"er": 2, "est": 3}}),
        ({}, ("ctx.k", "ctx.deep.er"), {"deep": {}}),
        ({}, ("ctx.never", "ctx.k.inside", "step.k"), {"k": 1, "deep": {"er": 2}}),
        ({"ctx.deep.new": 1}, ("ctx.deep",), {"k": 1, "deep": {"new": 1}}),
    ],
)
def test_a_patch_changes_the_context(
    running: tuple[Engine, Control], values: Any, unset: tuple[str, ...], expected: Any
) -> None:
    engine, control = running
    (fact,) = engine.patch(control, values, unset, KNOWN)
    assert fact.event_type == "ctx.patched"
    assert control.ctx == expected
    rebuilt = Control(execution_id=7, ctx={"k": 1, "deep": {"er": 2}})
    apply(rebuilt, Fact(event_type="ctx.patched", payload=fact.payload))
    assert rebuilt.ctx == expected


def test_a_patch_of_nothing_is_nothing(running: tuple[Engine, Control]) -> None:
    engine, control = running
    assert engine.patch(control, {}, (), KNOWN) == []


def test_nothing_is_removed_in_place() -> None:
    scope = {"a": {"b": 1, "c": 2}}
    assert unassign(scope, "a.b") == {"a": {"c": 2}}
    assert scope == {"a": {"b": 1, "c": 2}}
