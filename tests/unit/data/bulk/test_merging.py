"""Sorted sources become roots, each with all of its events in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.data.bulk.merging import merge
from noetl.errors import Corruption
from tests.unit.data.bulk.tables import Row, Rows, drained


def rows(*places: tuple[str, int]) -> list[Row]:
    return [(root, position, f"{root}@{position}".encode()) for root, position in places]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 4)), max_size=60),
    st.integers(1, 7),
)
def test_every_event_is_given_once_and_in_order(told: list[tuple[str, int]], size: int) -> None:
    """The position of an event is its place in the list; which source has it is drawn."""
    sources: dict[int, list[tuple[str, int]]] = {}
    expected: dict[str, list[tuple[int, bytes]]] = {}
    for position, (root, source) in enumerate(told, start=1):
        sources.setdefault(source, []).append((root, position))
        expected.setdefault(root, []).append((position, f"{root}@{position}".encode()))
    found = drained(merge([Rows(str(number), rows(*sorted(has)), size=size) for number, has in sources.items()]))
    assert found == expected
    assert list(found) == sorted(expected)


def test_a_source_is_opened_when_the_merge_comes_to_it() -> None:
    old, new = Rows("old", rows(("a", 1), ("b", 2))), Rows("new", rows(("c", 3)))
    merged = merge([new, old])
    assert next(merged)[0] == "a"
    assert (old.opened, new.opened) == (1, 0)
    assert [root for root, _ in merged] == ["b", "c"]


def test_what_is_left_of_a_root_is_passed_over() -> None:
    source = Rows("one", rows(*[("a", position) for position in range(1, 9)], ("b", 9)), size=2)
    merged = merge([source])
    root, chunks = next(merged)
    assert (root, next(chunks).positions) == ("a", [1, 2])
    root, chunks = next(merged)
    assert (root, next(chunks).positions) == ("b", [9])
    assert next(merged, None) is None


def test_an_empty_source_has_no_roots() -> None:
    assert drained(merge([Rows("none", []), Rows("one", rows(("a", 1)))])) == {"a": [(1, b"a@1")]}


@pytest.mark.parametrize(
    ("places", "size", "said"),
    [
        ([("b", 1), ("a", 2)], 3, "one: a stands after b"),
        ([("b", 1), ("a", 2)], 1, "one: a stands after b"),
        ([("a", 2), ("a", 1)], 3, "one: its events are not in order of root and position"),
        ([("a", 2), ("a", 1)], 1, "one: position 1 of a stands twice, or before its turn"),
        ([("a", 1), ("a", 1)], 1, "one: position 1 of a stands twice, or before its turn"),
    ],
)
def test_a_source_that_is_not_sorted_is_refused(places: list[tuple[str, int]], size: int, said: str) -> None:
    with pytest.raises(Corruption, match=said):
        drained(merge([Rows("one", rows(*places), size=size)]))


def test_a_position_that_two_sources_have_is_refused() -> None:
    with pytest.raises(Corruption, match="position 2 of a stands twice"):
        drained(merge([Rows("one", rows(("a", 1), ("a", 2))), Rows("two", rows(("a", 2)))]))
