"""What rows return stands in the event of their frame, exactly, or it is left to those who store it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.data.frame.protocol import Returned
from noetl.data.frame.told import Told, results_of
from noetl.kernel import canonical
from tests.unit.data.frame.values import scalars

results = st.recursive(scalars, lambda one: st.lists(one, max_size=2) | st.dictionaries(st.text("ab"), one, max_size=2))


def told(*values: Any) -> Told:
    found = Told()
    for place, value in enumerate(values):
        found.add(place, value)
    return found


def spelled(value: Any) -> str:
    """With its types: 1, 1.0 and true are not the same."""
    return repr(sort(value))


def sort(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: sort(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [sort(item) for item in value]
    return value or 0.0 if isinstance(value, float) else value


def columns(values: list[Any]) -> list[str]:
    return list(dict.fromkeys(name for value in values if isinstance(value, dict) for name in value))


@given(st.lists(results, min_size=1, max_size=12), st.data())
def test_results_come_back_as_they_were(values: list[Any], data: st.DataObject) -> None:
    good = data.draw(st.lists(st.sampled_from(range(len(values))), min_size=1, unique=True).map(sorted))
    returned = told(*values).returned(good, len(values))
    assert returned is not None
    event = canonical.decode(canonical.encode(msgspec.to_builtins(returned)))
    again = msgspec.convert(event, Returned)
    found, wanted = results_of(again), [values[place] for place in good]
    assert [spelled(value) for value in found] == [spelled(value) for value in wanted]
    assert columns(found) == columns(wanted)
    assert (again.at or list(range(len(values)))) == good
    assert len({spelled(value) for value in again.results}) == len(again.results)


def test_results_that_end_in_another_order_are_told_in_that_of_their_rows() -> None:
    found = Told()
    for place in (2, 0, 1):
        found.add(place, {"n": place})
    assert found.returned([0, 1, 2], 3) == Returned(results=[{"n": 0}, {"n": 1}, {"n": 2}], bytes=21)


def test_the_same_is_told_once() -> None:
    same = {"message": "UPDATE 1"}
    returned = told(*[same] * 50).returned(range(50), 50)
    assert returned == Returned(results=[same], bytes=22, which=[0] * 50)


def test_what_failed_rows_have_not_returned_is_not_told() -> None:
    returned = told(None, {"n": 1}, None).returned([1], 3)
    assert returned == Returned(results=[{"n": 1}], bytes=11, at=[1])


@pytest.mark.parametrize(
    "value",
    [
        (1, 2), float("nan"), float("inf"), b"ab", Decimal("1.50"), datetime(2026, 1, 2, tzinfo=UTC),
        {"deep": [{"er": (1,)}]}, {"a", "b"},
    ],
)  # fmt: skip
def test_what_is_no_json_is_not_told(value: Any) -> None:
    assert told({"n": 1}, value).returned([0, 1], 2) is None


@pytest.mark.parametrize(("value", "why"), [("\ud800", "surrogate"), ({1: "a"}, "not text")])
def test_what_cannot_even_be_spelled_is_refused(value: Any, why: str) -> None:
    with pytest.raises(canonical.NotCanonical, match=why):
        told(value)


@pytest.mark.parametrize(("first", "second"), [(None, float("nan")), ([1], (1,)), ("1.50", Decimal("1.50"))])
def test_what_is_only_spelled_alike_is_not_taken_for_the_same(first: Any, second: Any) -> None:
    assert told(first, second).returned([0, 1], 2) is None
    assert told(second, first).returned([0, 1], 2) is None


def test_much_is_not_told() -> None:
    assert told(*[{"text": str(number) * 2000} for number in range(4)]).returned(range(4), 4) is not None
    assert told(*[{"text": str(number) * 2100} for number in range(4)]).returned(range(4), 4) is None
    assert told(*[1] * 1000).returned(range(1000), 1000) is not None
    assert told(*[1] * 1001).returned(range(1001), 1001) is None
    assert told(1).returned([], 1) is None


def test_sizes_go_on_being_counted_when_it_is_too_much() -> None:
    found = Told()
    assert [found.add(place, "x" * 6000) for place in range(3)] == [6002] * 3
    assert [found.add(place + 3, "y" * 6000) for place in range(3)] == [6002] * 3
    assert found.returned(range(6), 6) is None
