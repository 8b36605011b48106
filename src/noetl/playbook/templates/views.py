"""How results look from inside a template: the aliases of DSL.md 7.4, which exist nowhere else.

A view is read by key and hands over plain data; it is never stored or sent. The caller puts views among the
names, directly or in `Views`. A plain list or mapping is taken to be plain all the way down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

__all__ = ["MISSING", "VIEWS", "EventName", "External", "ResultView", "Views"]


@final
class _Missing:
    """Nothing is there, which is not the same as None."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()
_ALIASES = frozenset({"data", "result", "context"})


@dataclass(frozen=True, slots=True)
class External:
    """Where an externalised result lives. `resolve` brings the whole value; the shell provides it.

    Without `ref` it is one that is read part by part all the same, and will stay in its event.
    """

    ref: Any
    store: str
    preview: str
    resolve: Callable[[], Any]

    def field(self, key: str) -> Any:
        if self.ref is None:
            return MISSING
        return {"_ref": self.ref, "_store": self.store, "_preview": self.preview}.get(key, MISSING)


class ResultView:
    """The result of a step or a task.

    With `external`, `value` is the part that is kept inline, and reading anything else resolves the rest, once.
    With `http`, a key that the result lacks is looked up in its body.
    """

    __slots__ = ("_external", "_http", "_inline", "_whole", "outcome")

    def __init__(
        self, value: Any, outcome: str = "ok", *, http: bool = False, external: External | None = None
    ) -> None:
        self.outcome = outcome
        self._inline = value
        self._whole = value if external is None else MISSING
        self._http = http
        self._external = external

    def plain(self) -> Any:
        """The raw result, whole."""
        if self._whole is MISSING and self._external is not None:
            self._whole = self._external.resolve()
        return self._whole

    def read(self, key: str) -> Any:
        """What `.key` and `['key']` give, or MISSING."""
        found = _in_mapping(self._inline, key)
        if found is MISSING and self._external is not None:
            found = self._external.field(key)
            if found is MISSING:
                found = _in_mapping(self.plain(), key)
        return found if found is not MISSING else self._alias(key)

    def _alias(self, key: str) -> Any:
        if self._http:
            for body in ("data", "body"):
                found = _in_mapping(_in_mapping(self._whole, body), key)
                if found is not MISSING:
                    return found
        if key in _ALIASES:
            return self
        return self.outcome if key == "status" else MISSING

    def __repr__(self) -> str:
        return f"ResultView({self.outcome!r})"


class Views(Mapping[str, Any]):
    """A mapping that may hold views, such as `results` inside a pipeline."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = items

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def plain(self) -> dict[str, Any]:
        return {
            key: value.plain() if isinstance(value, ResultView | Views) else value for key, value in self._items.items()
        }


VIEWS: Final = (ResultView, Views)


class EventName(str):
    """The name of the event that a step ended with. It equals its older alias too (DSL.md 3.2)."""

    __slots__ = ()
    _OLDER: Final = {"call.done": "step.done", "call.error": "step.failed"}

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or (isinstance(other, str) and self._OLDER.get(str(self)) == str(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __str__(self) -> str:
        return str.__str__(self)


def _in_mapping(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key, MISSING)
    return value.get(key, MISSING) if isinstance(value, Mapping) else MISSING
