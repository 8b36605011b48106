"""Results of rows that stand in the event of their frame, because they are little.

Rows of a cursor mostly end with a statement that writes, and have the same to say of it. So each different result is
told once. As an object, with all that makes it durable, they would cost more than the frame's events together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetl.data.frame.protocol import Returned
from noetl.kernel import canonical

__all__ = ["Told", "results_of"]

_MOST_BYTES = 8 << 10
_MOST_ROWS = 1000


class Told:
    """Gathers what rows return, as long as it is little."""

    def __init__(self) -> None:
        self._results: list[Any] = []
        self._numbers: dict[bytes, int] = {}
        self._which: dict[int, int] = {}
        self._bytes = 0

    def add(self, place: int, result: Any) -> int:
        """A row has returned something; about how many bytes that is as JSON."""
        if self._bytes > _MOST_BYTES:
            return canonical.length(result)
        data = canonical.spelled(result)
        number = self._numbers.get(data)
        if number is None:
            self._bytes += len(data)
            number = self._numbers[data] = len(self._results)
            self._results.append(result)
        elif self._results[number] != result:
            self._bytes = _MOST_BYTES + 1  # spelled alike they are still not the same: at least one is no JSON
        self._which[place] = number
        return len(data)

    def returned(self, good: Sequence[int], begun: int) -> Returned | None:
        """What the rows in these places have returned, of so many that were begun; None if it is no JSON, or much."""
        if not 0 < len(good) <= _MOST_ROWS or self._bytes > _MOST_BYTES:
            return None
        numbers: dict[int, int] = {}
        which = [numbers.setdefault(self._which[place], len(numbers)) for place in good]
        results = [self._results[number] for number in numbers]
        if not canonical.is_json(results):
            return None
        return Returned(
            results=results,
            columns=_columns(results),
            bytes=self._bytes,
            which=None if len(results) == len(which) else which,
            at=None if len(good) == begun else list(good),
        )


def _columns(results: Sequence[Any]) -> list[str] | None:
    names = list(dict.fromkeys(name for result in results if isinstance(result, dict) for name in result))
    return None if names == sorted(names) else names


def results_of(returned: Returned) -> list[Any]:
    """What each of the rows has returned."""
    results = returned.results
    if returned.columns is not None:  # an event has them sorted
        results = [_ordered(result, returned.columns) for result in results]
    return results if returned.which is None else [results[number] for number in returned.which]


def _ordered(result: Any, columns: Sequence[str]) -> Any:
    if not isinstance(result, dict):
        return result
    return {name: result[name] for name in columns if name in result}
