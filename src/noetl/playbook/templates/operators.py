"""Arithmetic, comparison and formatting, each refused before it costs too much."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from noetl.kernel.lazy import LAZY
from noetl.playbook.templates.errors import TemplateFailed, TemplateLimit
from noetl.playbook.templates.limits import MAX_BITS, Budget
from noetl.playbook.templates.plain import decoded
from noetl.playbook.templates.text import text_of
from noetl.playbook.templates.undefined import Lenient
from noetl.playbook.templates.views import VIEWS

__all__ = ["COMPARE", "OPERATORS", "compare", "printf", "reveal"]

_MAX_EXPONENT = 4096
_SCALARS = frozenset({int, float, bool, type(None)})
_LISTS = (list, tuple)
_LONG = (str, list, tuple, dict)
_SPEC = re.compile(r"%(?:\(([^()%]*)\))?([#0\- +]*)(\d*)(?:\.(\d*))?([diouxXeEfFgGcrsa%])")


def reveal(value: Any) -> Any:
    """What a view shows; anything else as it is."""
    return value.plain() if isinstance(value, VIEWS) else value


def _known(budget: Budget, value: Any) -> Any:
    """What is compared and computed with: of a lazy value all of it, paid for before it is made."""
    value = reveal(value)
    if not isinstance(value, LAZY):
        return value
    budget.walk(value)
    return decoded(value)


def _add(budget: Budget, left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        budget.take_text(len(left) + len(right))
    elif isinstance(left, _LISTS) and isinstance(right, _LISTS):
        budget.take_items(len(left) + len(right))
        return [*left, *right]
    return left + right


def _multiply(budget: Budget, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > MAX_BITS:
            raise _too_large()
    elif isinstance(left, int) or isinstance(right, int):
        times, value = (left, right) if isinstance(left, int) else (right, left)
        if isinstance(value, str):
            budget.take_text(len(value) * times)
        elif isinstance(value, list | tuple):
            budget.take_items(len(value) * times)
            return list(value) * times
    return left * right


def _power(budget: Budget, left: Any, right: Any) -> Any:
    budget.spend(8)
    if isinstance(left, int) and isinstance(right, int) and abs(left) > 1 and left.bit_length() * right > MAX_BITS:
        raise _too_large()
    if isinstance(left, Decimal) and abs(right) > _MAX_EXPONENT:
        raise _too_large()
    result = left**right
    if isinstance(result, complex):
        raise TemplateFailed("the power is not a real number")
    return result


def _modulo(budget: Budget, left: Any, right: Any) -> Any:
    return printf(budget, left, right) if isinstance(left, str) else left % right


def _too_large() -> TemplateLimit:
    return TemplateLimit(f"a whole number may have {MAX_BITS} bits")


_GUARDED: dict[str, Callable[[Budget, Any, Any], Any]] = {
    "+": _add,
    "*": _multiply,
    "**": _power,
    "%": _modulo,
    "-": lambda _, left, right: left - right,
    "/": lambda _, left, right: left / right,
    "//": lambda _, left, right: left // right,
}


def _with_values(guarded: Callable[[Budget, Any, Any], Any]) -> Callable[[Budget, Any, Any], Any]:
    def apply(budget: Budget, left: Any, right: Any) -> Any:
        return guarded(budget, _known(budget, left), _known(budget, right))

    return apply


OPERATORS = {sign: _with_values(guarded) for sign, guarded in _GUARDED.items()}

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


def compare(budget: Budget, sign: str, left: Any, right: Any) -> Any:
    """One comparison. Long values that could be equal are paid for in full, unequal lengths are free."""
    if type(left) in _SCALARS and type(right) in _SCALARS:
        return COMPARE[sign](left, right)
    left, right = _known(budget, left), _known(budget, right)
    if sign in ("in", "notin"):
        budget.take(left)
        if isinstance(right, _LONG):
            budget.spend(len(right) >> 3)
        if isinstance(left, list | tuple | dict) and isinstance(right, list | tuple):
            budget.walk(right, 2)
    elif isinstance(left, _LONG) and isinstance(right, _LONG):
        ordered = sign not in ("eq", "ne")
        if ordered or (type(left) is type(right) and len(left) == len(right)):
            budget.walk(left, 2)
    return COMPARE[sign](left, right)


def printf(budget: Budget, template: str, values: Any) -> str:
    """`'%s: %d' % values`, with one specification filled in at a time so that the length is known before."""
    values = reveal(values)
    source = iter(values) if isinstance(values, tuple) else iter((values,))
    budget.take_text(len(template))
    done: list[str] = []
    at = 0
    while (place := template.find("%", at)) >= 0:
        spec = _SPEC.match(template, place)
        if spec is None:
            raise TemplateFailed("the format is not one of %s, %d, %f and their like")
        done += (template[at:place], _one(budget, spec, values, source))
        at = spec.end()
    if not isinstance(values, Mapping) and next(source, source) is not source:
        raise TemplateFailed("there are more values than the format has places")
    done.append(template[at:])
    return "".join(done)


def _one(budget: Budget, spec: re.Match[str], values: Any, source: Any) -> str:
    key, flags, width, precision, kind = spec.groups()
    if kind == "%":
        return "%"
    if len(width) > 7 or len(precision or "") > 4:
        raise TemplateLimit("a width or precision in a format is too large")
    value = _keyed(values, key) if key is not None else next(source, source)
    if value is source:
        raise TemplateFailed("the format has more places than there are values")
    value = _formattable(value)
    budget.take_text(int(width or 0) + int(precision or 0) + (len(value) if isinstance(value, str) else 0))
    point = "" if precision is None else f".{precision}"
    return f"%{flags}{width}{point}{kind}" % (value,)


def _keyed(values: Any, key: str) -> Any:
    if not isinstance(values, Mapping):
        raise TemplateFailed("the format asks for names, so it needs a mapping")
    if key not in values:
        raise TemplateFailed(f"the format asks for '{key}', which the mapping does not have")
    return values[key]


def _formattable(value: Any) -> Any:
    value = reveal(value)
    if isinstance(value, Lenient):
        value.filtered()
        return ""
    return value if isinstance(value, int | float | Decimal | str) else text_of(value)
