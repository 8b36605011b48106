"""Assignments to nested mappings, and what two rounds of them come to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noetl.engine.control import add_assignments, assign

paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join)
values = st.one_of(st.integers(0, 3), st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=2))
rounds = st.lists(st.dictionaries(paths, values, max_size=3), max_size=4)


def test_inner_mappings_are_made_as_needed() -> None:
    assert assign({}, "a.b.c", 1) == {"a": {"b": {"c": 1}}}
    assert assign({"a": 5}, "a.b", 1) == {"a": {"b": 1}}
    assert assign({"a": {"x": 1}}, "a.b", 2) == {"a": {"x": 1, "b": 2}}


def test_nothing_is_changed_in_place() -> None:
    inner = {"x": 1}
    scope = {"a": inner}
    assert assign(scope, "a.x", 2) == {"a": {"x": 2}}
    assert (scope, inner) == ({"a": {"x": 1}}, {"x": 1})


def test_a_later_write_swallows_what_lies_inside_it() -> None:
    assert add_assignments({"ctx.a.b": 1, "ctx.ab": 2}, {"ctx.a": 3}) == {"ctx.ab": 2, "ctx.a": 3}


def test_a_later_write_inside_goes_into_the_value() -> None:
    assert add_assignments({"ctx.a": {"x": 1}}, {"ctx.a.b": 2}) == {"ctx.a": {"x": 1, "b": 2}}


def apply(scope: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    for path, value in written.items():
        scope = assign(scope, path, value)
    return scope


@given(rounds, st.randoms())
def test_assignments_added_up_give_the_same_in_any_order(written: list[dict[str, Any]], chance: Any) -> None:
    one_by_one: dict[str, Any] = {"a": {"old": 1}, "b": 7}
    together: dict[str, Any] = {}
    for assignments in written:
        one_by_one = apply(one_by_one, assignments)
        together = add_assignments(together, assignments)
    shuffled = list(together.items())
    chance.shuffle(shuffled)
    assert apply({"a": {"old": 1}, "b": 7}, dict(shuffled)) == one_by_one
