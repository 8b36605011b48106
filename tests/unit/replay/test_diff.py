"""What changed between two states, by surface, row and field."""

from __future__ import annotations

from typing import Any

from noetl.kernel.fold import State, apply, new_state
from noetl.replay.diff import diff
from tests.golden.produce import produce, replayed
from tests.unit.kernel.drafts import EXECUTION, envelope

ORDERS = produce()["examples/logs/orders.jsonl"]


def with_ctx(value: Any) -> State:
    return apply(new_state(f"execution/{EXECUTION}"), envelope(payload={"set": {"ctx.value": value}}))


def test_equal_states_do_not_differ() -> None:
    assert list(diff(replayed(ORDERS), replayed(ORDERS))) == []


def test_everything_is_new_after_nothing() -> None:
    changes = list(diff(new_state(ORDERS[0].stream_id), replayed(ORDERS)))
    counts = {surface: len(replayed(ORDERS).rows(surface)) for surface in replayed(ORDERS).surfaces}
    added = {name: sum(change.surface == name and change.kind == "added" for change in changes) for name in counts}
    assert added == {**counts, "execution": added["execution"]}


def test_a_changed_field_has_both_its_values() -> None:
    before, after = replayed(ORDERS[:-1]), replayed(ORDERS)
    [change] = diff(before, after)
    assert (change.surface, change.row, change.kind) == ("execution", "root", "changed")
    assert change.fields["event_count"] == (86, 87)
    assert change.fields["status"] == ("RUNNING", "COMPLETED")
    assert "path" not in change.fields


def test_a_diff_backwards_has_removed_rows() -> None:
    kinds = {change.kind for change in diff(replayed(ORDERS), replayed(ORDERS[:50]))}
    assert kinds == {"removed", "changed"}


def test_surfaces_and_rows_come_in_order() -> None:
    changes = [(change.surface, change.row) for change in diff(replayed(ORDERS[:40]), replayed(ORDERS))]
    surfaces = list(replayed(ORDERS).surfaces)
    assert changes == sorted(changes, key=lambda item: (surfaces.index(item[0]), len(item[1]), item[1]))


def test_values_that_only_python_takes_as_equal_differ() -> None:
    [change] = diff(with_ctx(1), with_ctx(1.0))
    assert change.fields == {"ctx": ({"value": 1}, {"value": 1.0})}
    assert list(diff(with_ctx(1), with_ctx(1))) == []
