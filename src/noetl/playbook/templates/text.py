"""Values as text: how they print, and how they are written as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any

from noetl.kernel.lazy import LAZY
from noetl.playbook.templates.errors import TemplateFailed, TemplateLimit
from noetl.playbook.templates.limits import Limits, survey
from noetl.playbook.templates.views import VIEWS

_NUMBERS = (int, float, Decimal)
_SHOWING = (*VIEWS, *LAZY)
_LONG = (dict, list, tuple, *LAZY)

__all__ = ["print_plain", "text_of", "to_json"]


def text_of(value: Any) -> str:
    """How a plain value prints: a mapping or list as JSON, none as `None`, a boolean as `True` or `False`."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, _NUMBERS):
        return _number(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, _SHOWING):
        return text_of(value.plain())
    if isinstance(value, (list, tuple, Mapping)):
        return to_json(value)
    raise TemplateFailed(f"a {type(value).__name__} has no text")


def print_plain(value: Any, limits: Limits) -> str:
    """`text_of`, refused where a list that holds itself many times over would print without end."""
    if isinstance(value, VIEWS):
        value = value.plain()
    if isinstance(value, _LONG) and survey(value, limits.work)[0] > limits.work:
        raise TemplateLimit(f"the template does more than {limits.work} units of work")
    return text_of(value)


def to_json(value: Any, indent: int | None = None) -> str:
    """Plain JSON: no HTML escapes, dates as ISO text, decimals as numbers with every digit."""
    try:
        if indent is None:
            return _encode(value)
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=_other)
    except _DecimalFound:
        return _exact(value)
    except (TypeError, ValueError):
        raise TemplateFailed("the value has no JSON form") from None
    except RecursionError:
        raise TemplateLimit("the value is nested too deeply") from None


def _number(value: Any) -> str:
    try:
        return str(value)
    except ValueError:
        raise TemplateLimit("a number has too many digits to print") from None


class _DecimalFound(Exception):
    """The encoder of the standard library cannot write a decimal as a number."""


def _other(value: Any) -> Any:
    if isinstance(value, Decimal):
        raise _DecimalFound
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, _SHOWING):
        return value.plain()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_other).encode


def _exact(value: Any) -> str:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise TemplateFailed("the value has no JSON form")
        return str(value)
    if isinstance(value, _SHOWING):
        return _exact(value.plain())
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {_exact(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_exact, value)) + "]"
    return to_json(value)


def _key(key: Any) -> str:
    """A key as the standard library writes it."""
    return json.dumps({key: 0}, ensure_ascii=False)[1 : -len(": 0}")]
