"""Values that are JSON only on demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.lazy import MOST_DECODED, Composite, LazyMapping, LazySequence, composed, plain


class Numbers(LazySequence):
    """The numbers below a limit; it remembers which were asked for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.read: list[int] = []

    def __len__(self) -> int:
        return self._limit

    def __getitem__(self, index: Any) -> Any:
        self.read.append(index)
        return range(self._limit)[index]

    @property
    def width(self) -> int:
        return 1

    def plain(self) -> list[Any]:
        return list(range(self._limit))


class Whole(LazyMapping):
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def __getitem__(self, key: str) -> Any:
        return {"numbers": self._numbers}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(("numbers",))

    def __len__(self) -> int:
        return 1

    @property
    def size(self) -> int:
        return self._numbers.size

    def plain(self) -> Any:
        return {"numbers": self._numbers.plain()}

    def whole(self) -> Any:
        return self

    def head(self) -> dict[str, Any]:
        return {"count": len(self._numbers)}


def test_the_json_of_a_lazy_value_is_that_of_the_whole() -> None:
    whole = Whole(Numbers(3))
    assert canonical.encode({"a": [whole], "n": Numbers(2)}) == b'{"a":[{"numbers":[0,1,2]}],"n":[0,1]}'
    assert plain(whole) == {"numbers": [0, 1, 2]}
    assert plain("text") == "text"


def test_what_would_fill_the_memory_is_refused_before_it_is_made() -> None:
    numbers = Numbers(MOST_DECODED + 1)
    with pytest.raises(InvalidInput, match=r"8000001 values.*\{\{ step \}\}, to a python or duckdb task"):
        plain(numbers)
    assert numbers.read == []


def test_a_mapping_around_lazy_values_is_lazy() -> None:
    value = composed({"a": 1, "in": {"deep": {"whole": Whole(Numbers(3))}}, "list": Numbers(2), "plain": {"x": [1]}})
    assert isinstance(value, Composite)
    assert isinstance(value["in"]["deep"], Composite)
    assert value["plain"] == {"x": [1]}
    assert value.plain() == {
        "a": 1, "in": {"deep": {"whole": {"numbers": [0, 1, 2]}}}, "list": [0, 1], "plain": {"x": [1]},
    }  # fmt: skip
    assert value.size == 1 + 3 + 2 + 1


def test_a_mapping_without_any_is_left_as_it_is() -> None:
    value = {"a": {"b": [1, 2]}}
    assert composed(value) is value


def test_readers_of_tables_get_tables_and_plain_lists() -> None:
    whole = Whole(Numbers(3))
    assert Composite({"t": whole, "rows": Numbers(2), "n": 1}).whole() == {"t": whole, "rows": [0, 1], "n": 1}


def test_its_head_shows_short_lists_and_leaves_out_long_ones() -> None:
    value = Composite({"t": Whole(Numbers(3)), "few": Numbers(2), "many": Numbers(16), "n": 1})
    assert value.head() == {"t": {"count": 3}, "few": [0, 1], "n": 1}
