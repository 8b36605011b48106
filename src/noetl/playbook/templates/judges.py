"""The tests of `x is ...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from jinja2 import Undefined
from jinja2.utils import pass_context

from noetl.kernel.lazy import LazySequence
from noetl.playbook.templates.operators import compare, reveal
from noetl.playbook.templates.vocabulary import FILTERS
from noetl.playbook.templates.vocabulary import TESTS as TEST_NAMES

if TYPE_CHECKING:
    from noetl.playbook.templates.environment import RenderContext

__all__ = ["TESTS"]

Judge = Callable[..., Any]


def _judge(decide: Callable[..., Any]) -> Judge:
    """A test that looks at values only."""

    @pass_context
    def judge(context: RenderContext, value: Any, *args: Any) -> Any:
        context.budget.spend(1)
        return decide(reveal(value), *map(reveal, args))

    return judge


def _comparison(sign: str) -> Judge:
    @pass_context
    def judge(context: RenderContext, value: Any, other: Any) -> Any:
        context.budget.spend(1)
        return compare(context.budget, sign, value, other)

    return judge


def _cased(test: Callable[[str], bool]) -> Judge:
    @pass_context
    def judge(context: RenderContext, value: Any) -> bool:
        text = context.print(value)
        context.budget.take_text(len(text))
        return test(text)

    return judge


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@pass_context
def _same(context: RenderContext, value: Any, other: Any) -> bool:
    """For scalars, equal and of one type: which of them share their memory is an accident."""
    value, other = reveal(value), reveal(other)
    context.budget.take(value)
    if isinstance(value, list | tuple | Mapping):
        return value is other
    return type(value) is type(other) and bool(value == other)


_COMPARISONS = {
    "eq": ("==", "eq", "equalto"),
    "ne": ("!=", "ne"),
    "gt": (">", "gt", "greaterthan"),
    "gteq": (">=", "ge"),
    "lt": ("<", "lt", "lessthan"),
    "lteq": ("<=", "le"),
    "in": ("in",),
}

TESTS: dict[str, Judge] = {
    **{name: _comparison(sign) for sign, names in _COMPARISONS.items() for name in names},
    "boolean": _judge(lambda value: isinstance(value, bool)),
    "defined": _judge(lambda value: not isinstance(value, Undefined)),
    "divisibleby": _judge(lambda value, number: value % number == 0),
    "even": _judge(lambda value: value % 2 == 0),
    "false": _judge(lambda value: value is False),
    "filter": _judge(lambda value: value in FILTERS),
    "float": _judge(lambda value: isinstance(value, float)),
    "integer": _judge(_is_integer),
    "iterable": _judge(lambda value: isinstance(value, str | list | tuple | LazySequence | Mapping | Undefined)),
    "lower": _cased(str.islower),
    "mapping": _judge(lambda value: isinstance(value, Mapping)),
    "none": _judge(lambda value: value is None),
    "number": _judge(lambda value: isinstance(value, int | float | Decimal)),
    "odd": _judge(lambda value: value % 2 == 1),
    "sameas": _same,
    "sequence": _judge(lambda value: isinstance(value, str | list | tuple | LazySequence | Mapping)),
    "string": _judge(lambda value: isinstance(value, str)),
    "test": _judge(lambda value: value in TEST_NAMES),
    "true": _judge(lambda value: value is True),
    "undefined": _judge(lambda value: isinstance(value, Undefined)),
    "upper": _cased(str.isupper),
}
