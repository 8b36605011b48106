"""Values that are larger than what anybody asks of them: they are read part by part, and are JSON only on demand.

A table of ten million rows passes through a pipeline like any other result. Whoever reads one field of it, or its
length, must not pay for the rest; whoever needs all of it as JSON asks for `plain()`, and `size` says beforehand
what that would cost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from noetl.errors import InvalidInput

__all__ = ["FEW", "LAZY", "MOST_DECODED", "Composite", "LazyMapping", "LazySequence", "composed", "is_lazy", "plain"]

FEW = 16
"""Lists that are shorter are shown whole."""
MOST_DECODED = 8_000_000
"""Elements that a lazy value may become on the way to somebody who takes nothing but JSON."""


class LazyMapping(Mapping[str, Any]):
    """A mapping that is read key by key. It stands for the JSON value that `plain()` gives."""

    __slots__ = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """How many elements the whole consists of, known without making them."""

    @abstractmethod
    def plain(self) -> Any:
        """The JSON value, whole."""

    @abstractmethod
    def head(self) -> dict[str, Any]:
        """A small plain part of it, for people and for what an event keeps: names, counts, a few rows."""

    def whole(self) -> Any:
        """The value for readers who know what to do with a table: tables stay tables, all else is plain."""
        return self.plain()


class LazySequence(Sequence[Any]):
    """A list that is read item by item."""

    __slots__ = ()

    @property
    @abstractmethod
    def width(self) -> int:
        """How many elements one item consists of."""

    @property
    def size(self) -> int:
        """How many elements the whole consists of, known without making them."""
        return len(self) * self.width

    @abstractmethod
    def plain(self) -> list[Any]:
        """The list, whole."""


class Composite(LazyMapping):
    """A plain mapping around lazy values, such as the result of a pipeline whose tasks have returned tables."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = {key: composed(value) for key, value in items.items()}

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def size(self) -> int:
        return sum(item.size if isinstance(item, LAZY) else 1 for item in self._items.values())

    def plain(self) -> dict[str, Any]:
        return {key: value.plain() if isinstance(value, LAZY) else value for key, value in self._items.items()}

    def whole(self) -> dict[str, Any]:
        return {key: value.whole() if isinstance(value, LazyMapping) else plain(value) for key, value in self.items()}

    def head(self) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, value in self._items.items():
            if isinstance(value, LazyMapping):
                shown[key] = value.head()
            elif not isinstance(value, LazySequence):
                shown[key] = value
            elif len(value) < FEW:
                shown[key] = value.plain()
        return shown


LAZY: Final = (LazyMapping, LazySequence)
_JSON: Final = frozenset({dict, list, str, int, float, bool, type(None)})


def is_lazy(value: Any) -> bool:
    """Whether a value is a table or has one in it. Most are plain JSON, and an abstract class is slow to say so."""
    return type(value) not in _JSON and isinstance(value, LAZY)


def composed(value: Any) -> Any:
    """The value itself, or a `Composite` where there is something lazy in a mapping."""
    if type(value) is not dict:
        return value
    inner: dict[str, Any] | None = None
    for key, item in value.items():
        kind = type(item)
        if kind is dict:
            whole = composed(item)
            if whole is not item:
                inner = inner or {**value}
                inner[key] = whole
        elif kind not in _JSON and isinstance(item, LAZY):
            inner = inner or {**value}
    return value if inner is None else Composite(inner)


def plain(value: Any) -> Any:
    """The JSON value of anything that may be lazy. Raises InvalidInput rather than fill the memory with it."""
    if not is_lazy(value):
        return value
    if value.size > MOST_DECODED:
        raise InvalidInput(
            f"a table of {value.size} values is too much to be turned into JSON (at most {MOST_DECODED})",
            hint="give it whole, as {{ step }}, to a python or duckdb task, or take a slice of its rows",
        )
    return value.plain()
