"""What a compiled template does by itself: loops, comparisons, slices and `~`, in the form that `rewrite` gives them.

They are filters with names that cannot be written in a template, so that nobody else can call them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jinja2.utils import pass_context

from noetl.kernel.lazy import LazySequence
from noetl.playbook.templates.errors import TemplateFailed
from noetl.playbook.templates.methods import join
from noetl.playbook.templates.operators import compare, reveal
from noetl.playbook.templates.undefined import Lenient

if TYPE_CHECKING:
    from noetl.playbook.templates.environment import RenderContext

__all__ = ["INTERNALS", "each"]


def each(context: RenderContext, value: Any, weight: int = 0, *, lazy: bool = False) -> Any:
    """What a loop goes through, with a length. `weight` is what a condition on the loop costs for each element.

    A loop pays for each pass and may stay lazy; a filter goes through everything, so it is given everything.
    """
    if isinstance(value, Lenient):
        value.filtered()
        return ()
    value = reveal(value)
    if isinstance(value, Mapping):
        value = list(value)
    elif isinstance(value, LazySequence) and not lazy:
        value = context.decode(value)
    if not isinstance(value, (list, tuple, str, LazySequence)):
        raise TemplateFailed(f"a {type(value).__name__} is not a list")
    context.budget.spend(1 + len(value) * weight)
    return value


@pass_context
def _each(context: RenderContext, value: Any, weight: int) -> Any:
    return each(context, value, weight, lazy=True)


@pass_context
def _step(context: RenderContext, _: Any, weight: int) -> None:
    context.budget.iterate(weight)


@pass_context
def _concat(context: RenderContext, values: list[Any]) -> str:
    return join(context, "", map(context.print, values))


@pass_context
def _compare(context: RenderContext, left: Any, signs: tuple[str, ...], *operands: Any) -> Any:
    result: Any = True
    for sign, right in zip(signs, operands, strict=True):
        result = compare(context.budget, sign, left, right)
        if not result:
            return result
        left = right
    return result


@pass_context
def _cut(context: RenderContext, value: Any, start: Any, stop: Any, step: Any) -> Any:
    value = reveal(value)
    if isinstance(value, Lenient):
        return value
    if isinstance(value, LazySequence):
        return _cut_lazily(context, value, slice(start, stop, step))
    if not isinstance(value, str | list | tuple):
        raise TemplateFailed(f"a {type(value).__name__} cannot be sliced")
    done = value[start:stop:step]
    context.budget.take(done)
    return done


def _cut_lazily(context: RenderContext, value: LazySequence, wanted: slice) -> Any:
    """A part of the rows in their order is a view of them; in any other order they are made."""
    places = range(*wanted.indices(len(value)))
    if places.step != 1:
        context.budget.take_items(len(places) * value.width)
    return value[wanted]


@pass_context
def _nothing(context: RenderContext, _: Any) -> Any:
    return context.environment.undefined("an if without else gave no value")


INTERNALS: dict[str, Callable[..., Any]] = {
    "each!": _each,
    "step!": _step,
    "concat!": _concat,
    "compare!": _compare,
    "cut!": _cut,
    "nothing!": _nothing,
}
