"""The border: what leaves a template is plain data, whatever it was inside.

A view becomes the value it shows, a tuple a list, an undefined element none, a table the JSON of it; only who asks for
lazy values gets a table as a table. Data that is plain already is handed
over as it is, without a copy, so neither side may change it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any

from noetl.errors import InvalidInput
from noetl.kernel.lazy import LAZY, plain
from noetl.playbook.templates.errors import TemplateFailed, TemplateLimit
from noetl.playbook.templates.views import ResultView, Views

__all__ = ["decoded", "hand_over"]

_PLAIN = frozenset({dict, list, str, int, float, bool, type(None)})


def hand_over(value: Any, *, lazy: bool = False) -> Any:
    """A value that was looked up, as the caller may keep it."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, ResultView):
        return hand_over(value.plain(), lazy=lazy)
    if isinstance(value, LAZY):
        return value if lazy else decoded(value)
    if isinstance(value, Views):
        return {key: hand_over(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float | Decimal | date | time):
        return value
    if isinstance(value, tuple):
        return [hand_over(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: hand_over(inner) for key, inner in value.items()}
    raise TemplateFailed(f"a {type(value).__name__} is not plain data")


def decoded(value: Any) -> Any:
    """The JSON of a lazy value, unless there is too much of it."""
    try:
        return plain(value)
    except InvalidInput as error:
        raise TemplateLimit(error.message, hint=error.hint) from None
