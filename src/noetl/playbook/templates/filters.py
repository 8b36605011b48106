"""The filters.

Every filter gets the context first, so none runs while a template is compiled, and each pays for its work. Filters
that give a sequence give a list: a generator would be empty when it is read again.
"""

from __future__ import annotations

import base64
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import markupsafe
from jinja2 import Undefined
from jinja2 import filters as jinja
from jinja2.utils import pass_context

from noetl.kernel.lazy import LazySequence
from noetl.playbook.templates.errors import TemplateFailed, TemplateLimit
from noetl.playbook.templates.internals import each
from noetl.playbook.templates.limits import LENT, MAX_BITS
from noetl.playbook.templates.methods import join, padded, replace
from noetl.playbook.templates.operators import OPERATORS, printf, reveal
from noetl.playbook.templates.text import to_json
from noetl.playbook.templates.undefined import Lenient

if TYPE_CHECKING:
    from noetl.playbook.templates.environment import RenderContext

__all__ = ["FILTERS"]

Filter = Callable[..., Any]

_MAX_INDENT = 16
_MAX_PRECISION = 64
_NUMBERS = frozenset({int, float, bool, Decimal})


def _filter(apply: Filter) -> Filter:
    """A filter over the revealed value; an undefined one is refused here where the field is strict."""

    @pass_context
    def guarded(context: RenderContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, Lenient):
            value.filtered()
        value = reveal(value)
        context.budget.take_arguments(args, kwargs)
        context.budget.take(value)
        return apply(context, value, *args, **kwargs)

    return guarded


def _textual(apply: Callable[..., str], *, cost: int = 1) -> Filter:
    """A filter from text to text of about the same length; anything else is printed first."""

    @_filter
    def guarded(context: RenderContext, value: Any, *args: Any, **kwargs: Any) -> str:
        text = context.print(value)
        context.budget.spend(1 + (len(text) * cost >> 6))
        done = str(apply(text, *args, **kwargs))
        context.budget.take_text(len(done))
        return done

    return guarded


def _sequence(apply: Callable[..., Iterable[Any]], *, sorts: bool = False) -> Filter:
    """A filter that goes through all elements and gives a list."""

    @_filter
    def guarded(context: RenderContext, value: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if sorts:
            context.budget.walk(value)
        value = each(context, value, _steps(args, kwargs) * (4 if sorts else 1))
        done = list(apply(context, value, *args, **kwargs))
        context.budget.take_items(len(done))
        return done

    return guarded


def _steps(args: Iterable[Any], kwargs: Mapping[str, Any]) -> int:
    """How many keys an argument such as `attribute='a.b,c'` reads from each element."""
    texts = [value for value in (*args, *kwargs.values()) if isinstance(value, str)]
    return 1 + sum(text.count(".") + text.count(",") for text in texts)


def _of_environment(apply: Callable[..., Any]) -> Callable[..., Any]:
    def call(context: RenderContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        return apply(context.environment, value, *args, **kwargs)

    return call


def _without_context(apply: Callable[..., Any]) -> Callable[..., Any]:
    def call(_: RenderContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        return apply(value, *args, **kwargs)

    return call


def _count(_: RenderContext, value: Any) -> int:
    if not isinstance(value, str | list | tuple | LazySequence | Mapping | Undefined):
        raise TemplateFailed(f"a {type(value).__name__} has no length")
    return len(value)


@pass_context
def _default(context: RenderContext, value: Any, default: Any = "", boolean: bool = False) -> Any:
    context.budget.spend(1)
    return default if isinstance(value, Undefined) or (boolean and not reveal(value)) else value


def _int(context: RenderContext, value: Any, default: Any = 0, base: int = 10) -> Any:
    if isinstance(value, Undefined):
        return default
    try:
        found = int(value, base) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        number = _float(context, value, None)
        return default if number is None else int(number)
    if found.bit_length() > MAX_BITS:
        raise TemplateLimit(f"a whole number may have {MAX_BITS} bits")
    return found


def _float(_: RenderContext, value: Any, default: Any = 0.0) -> Any:
    """Text such as `nan` is no number: it has no JSON form."""
    if isinstance(value, Undefined):
        return default
    try:
        found = float(value)
    except (TypeError, ValueError):
        return default
    return found if math.isfinite(found) else default


def _round(_: RenderContext, value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > _MAX_PRECISION:
        raise TemplateLimit(f"round() takes at most {_MAX_PRECISION} digits")
    return jinja.do_round(value, precision, method)  # type: ignore[arg-type]  # it refuses other methods itself


def _sum(context: RenderContext, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    elements = each(context, value, _steps([attribute], {}))
    if attribute is not None:
        elements = list(map(jinja.make_attrgetter(context.environment, attribute), elements))
    if type(start) in _NUMBERS and _NUMBERS.issuperset(map(type, elements)):
        return sum(elements, start)
    total = start
    for element in elements:
        total = OPERATORS["+"](context.budget, total, element)
    return total


def _join(context: RenderContext, value: Any, separator: Any = "", attribute: Any = None) -> str:
    elements = each(context, value, _steps([attribute], {}))
    if attribute is not None:
        elements = map(jinja.make_attrgetter(context.environment, attribute), elements)
    return join(context, context.print(separator), (context.print(element) for element in elements))


def _replace(context: RenderContext, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    old, new = context.print(old), context.print(new)
    return replace(context, context.print(value), old, new, -1 if count is None else count)


def _format(context: RenderContext, value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TemplateFailed("format takes positions or names, not both")
    return printf(context.budget, context.print(value), kwargs or args)


def _center(context: RenderContext, value: Any, width: int = 80) -> str:
    return context.print(value).center(padded(context, width))


def _indent(context: RenderContext, value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = context.print(value)
    size = len(width) if isinstance(width, str) else width
    context.budget.take_text(len(text) + (len(text.splitlines()) + 1) * max(size, 0))
    return jinja.do_indent(text, width, first, blank)


def _wordwrap(
    context: RenderContext, value: Any, width: int = 79, break_long_words: bool = True, wrapstring: str = "\n"
) -> str:
    text = context.print(value)
    context.budget.spend(8 * len(text))
    breaks = 2 * len(text) // max(width, 1) + len(text.splitlines()) + 1
    context.budget.take_text(len(text) + breaks * len(wrapstring))
    wrapped = (
        textwrap.wrap(line, width, expand_tabs=False, replace_whitespace=False, break_long_words=break_long_words)
        for line in text.splitlines()
    )
    return wrapstring.join(wrapstring.join(lines) for lines in wrapped)


def _truncate(
    context: RenderContext, value: Any, length: int = 255, killwords: bool = False, end: str = "...", leeway: int = 5
) -> str:
    return jinja.do_truncate(context.environment, context.print(value), length, killwords, end, leeway)


def _batch(context: RenderContext, value: Any, linecount: int, fill_with: Any = None) -> Iterable[Any]:
    context.budget.take_items(linecount if fill_with is not None else 0)
    return jinja.do_batch(value, linecount, fill_with)


def _slice(context: RenderContext, value: Any, slices: int, fill_with: Any = None) -> Iterable[Any]:
    context.budget.take_items(slices * 8)
    return jinja.sync_do_slice(value, slices, fill_with)


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    def call(context: RenderContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        context.budget.walk(value)
        return choose(context.environment, each(context, value, 2 * _steps(args, kwargs)), *args, **kwargs)

    return call


def _first(context: RenderContext, value: Any) -> Any:
    return each(context, value, lazy=True)[0] if value else context.environment.undefined("there is no first item")


def _last(context: RenderContext, value: Any) -> Any:
    return each(context, value, lazy=True)[-1] if value else context.environment.undefined("there is no last item")


def _reverse(context: RenderContext, value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else list(reversed(each(context, value)))


def _pairs(_: RenderContext, value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Undefined):
        return []
    if not isinstance(value, Mapping):
        raise TemplateFailed(f"a {type(value).__name__} has no items")
    return list(value.items())


def _dictsort(context: RenderContext, value: Any, *args: Any, **kwargs: Any) -> Any:
    context.budget.walk(value)
    context.budget.spend(8 * len(value))
    return jinja.do_dictsort(dict(_pairs(context, value)), *args, **kwargs)


def _urlencode(context: RenderContext, value: Any) -> str:
    if isinstance(value, list | tuple):
        value = [(context.print(key), context.print(inner)) for key, inner in value]
    elif isinstance(value, Mapping):
        value = {context.print(key): context.print(inner) for key, inner in value.items()}
    else:
        value = context.print(value)
    context.budget.walk(value)
    context.budget.spend(len(value) >> 1)
    return jinja.do_urlencode(value)


def _tojson(context: RenderContext, value: Any, indent: int | None = None) -> str:
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise TemplateLimit(f"tojson indents by at most {_MAX_INDENT}")
    done = to_json(context.clean(value), indent)
    context.budget.take_text(len(done))
    context.budget.spend(len(done) >> 5)
    return done


def _b64encode(context: RenderContext, value: Any) -> str:
    text = context.print(value)
    context.budget.take_text(2 * len(text))
    return base64.b64encode(text.encode()).decode()


def _encrypt(context: RenderContext, value: Any) -> str:
    context.budget.spend(LENT)
    return context.host.encrypt(context.print(value))


def _escape(text: str) -> str:
    return str(markupsafe.escape(text))


_WORDS = re.compile(r"\w+")


def _trim(context: RenderContext, value: Any, chars: str | None = None) -> str:
    text = context.print(value)
    context.budget.take_product(text, chars or "")
    return text.strip(chars)


def _wordcount(context: RenderContext, value: Any) -> int:
    return len(_WORDS.findall(context.print(value)))


FILTERS: dict[str, Filter] = {
    "abs": _filter(_without_context(abs)),
    "b64encode": _filter(_b64encode),
    "batch": _sequence(_batch),
    "capitalize": _textual(str.capitalize),
    "center": _filter(_center),
    "count": _filter(_count),
    "d": _default,
    "default": _default,
    "dictsort": _filter(_dictsort),
    "e": _textual(_escape, cost=4),
    "encrypt_secret": _filter(_encrypt),
    "escape": _textual(_escape, cost=4),
    "filesizeformat": _filter(_without_context(jinja.do_filesizeformat)),
    "first": _filter(_first),
    "float": _filter(_float),
    "forceescape": _textual(_escape, cost=4),
    "format": _filter(_format),
    "groupby": _sequence(_of_environment(jinja.sync_do_groupby), sorts=True),
    "indent": _filter(_indent),
    "int": _filter(_int),
    "items": _filter(_pairs),
    "join": _filter(_join),
    "last": _filter(_last),
    "length": _filter(_count),
    "list": _sequence(lambda _, value: value),
    "lower": _textual(str.lower),
    "map": _sequence(jinja.sync_do_map),
    "max": _filter(_extreme(jinja.do_max)),
    "min": _filter(_extreme(jinja.do_min)),
    "reject": _sequence(jinja.sync_do_reject),
    "rejectattr": _sequence(jinja.sync_do_rejectattr),
    "replace": _filter(_replace),
    "reverse": _filter(_reverse),
    "round": _filter(_round),
    "safe": _textual(str),
    "select": _sequence(jinja.sync_do_select),
    "selectattr": _sequence(jinja.sync_do_selectattr),
    "slice": _sequence(_slice),
    "sort": _sequence(_of_environment(jinja.do_sort), sorts=True),
    "string": _textual(str),
    "sum": _filter(_sum),
    "title": _textual(jinja.do_title, cost=8),
    "tojson": _filter(_tojson),
    "trim": _filter(_trim),
    "truncate": _filter(_truncate),
    "unique": _sequence(_of_environment(jinja.sync_do_unique)),
    "upper": _textual(str.upper),
    "urlencode": _filter(_urlencode),
    "wordcount": _filter(_wordcount),
    "wordwrap": _filter(_wordwrap),
}
