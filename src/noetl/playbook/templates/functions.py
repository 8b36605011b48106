"""The functions a template may call, and the few values of its own that it can hold: namespaces, cyclers, loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2.runtime import LoopContext
from jinja2.utils import Namespace

from noetl.playbook.templates.errors import TemplateFailed, TemplateLimit
from noetl.playbook.templates.limits import LENT
from noetl.playbook.templates.operators import reveal
from noetl.playbook.templates.views import MISSING

if TYPE_CHECKING:
    from noetl.playbook.templates.environment import RenderContext

__all__ = ["FUNCTIONS", "Cycler", "Function", "Joiner", "own_attribute"]

_LOOP = frozenset(
    {"depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0"}
)


@dataclass(frozen=True, slots=True)
class Function:
    """Something that can be called, and nothing else."""

    name: str
    call: Callable[..., Any]


class Cycler:
    """`cycler('odd', 'even')`: `.next()` gives one after the other."""

    __slots__ = ("_at", "_values")

    def __init__(self, *values: Any) -> None:
        if not values:
            raise TemplateFailed("cycler() needs at least one value")
        self._values = values
        self._at = 0

    @property
    def current(self) -> Any:
        return self._values[self._at]

    def step(self) -> Any:
        value = self.current
        self._at = (self._at + 1) % len(self._values)
        return value

    def reset(self) -> None:
        self._at = 0


class Joiner:
    """`joiner(', ')`: nothing at the first call, the separator ever after."""

    __slots__ = ("_separator", "_used")

    def __init__(self, separator: str = ", ") -> None:
        self._separator = separator
        self._used = False

    def step(self) -> str:
        if self._used:
            return self._separator
        self._used = True
        return ""


def own_attribute(value: Any, name: str) -> Any:
    """What can be read from the values that a template makes itself, or MISSING."""
    kind = type(value)
    if kind is LoopContext:
        return getattr(value, name) if name in _LOOP else MISSING
    if kind is Namespace:
        attributes = object.__getattribute__(value, "_Namespace__attrs")
        return attributes.get(name, MISSING)
    if kind is Cycler and name == "current":
        return value.current
    return MISSING


def _range(context: RenderContext, *bounds: Any) -> list[int]:
    wanted = range(*bounds)
    most = context.budget.limits.iterations
    if wanted and (abs(wanted[-1] - wanted[0]) // abs(wanted.step)) >= most:
        raise TemplateLimit(f"range() gives at most {most} numbers")
    context.budget.take_items(len(wanted))
    return list(wanted)


def _dict(context: RenderContext, *sources: Any, **entries: Any) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for source in (*sources, entries):
        given = reveal(source)
        pairs = given.items() if isinstance(given, Mapping) else given
        context.budget.take_items(len(pairs))
        made.update(pairs)
    return made


def _namespace(context: RenderContext, *sources: Any, **entries: Any) -> Any:
    return Namespace(_dict(context, *sources, **entries))


def _token(context: RenderContext, credential: Any) -> str:
    context.budget.spend(LENT)
    return context.host.bearer(context.print(credential))


_CALLS: dict[str, Callable[..., Any]] = {
    "cycler": lambda _, *values: Cycler(*values),
    "dict": _dict,
    "joiner": lambda _, separator=", ": Joiner(str(separator)),
    "namespace": _namespace,
    "now": lambda context: context.host.time(),
    "range": _range,
    "token": _token,
}
FUNCTIONS = {name: Function(name, call) for name, call in _CALLS.items()}
