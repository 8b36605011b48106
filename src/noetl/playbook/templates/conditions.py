"""Conditions: `when` of arcs, rules and admission (DSL.md 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl.playbook.templates.errors import TemplateError
from noetl.playbook.templates.host import ALONE, Host
from noetl.playbook.templates.native import compile as compile_template
from noetl.playbook.templates.views import VIEWS

__all__ = ["condition", "demanded", "truth"]

_FALSE = frozenset({"", "false", "0", "no", "none"})


def truth(value: Any) -> bool:
    """A boolean as is; text by its meaning; anything else by emptiness or zero."""
    if type(value) is bool:
        return value
    if isinstance(value, str):
        return value.strip().lower() not in _FALSE
    if isinstance(value, VIEWS):
        return truth(value.plain())
    return bool(value)


def condition(when: Any, names: Mapping[str, Any], *, host: Host = ALONE) -> tuple[bool, str | None]:
    """Whether a condition holds, and why not if it raised. None, a missing `when`, is true.

    Only what is wrong with the template counts as raising. A result that cannot be fetched is an error of the
    caller: to decide without it would be a guess.
    """
    if when is None:
        return True, None
    if not isinstance(when, str):
        return truth(when), None
    try:
        return truth(compile_template(when).render(names, host=host, lazy=True)), None
    except TemplateError as error:
        return False, str(error)


def demanded(when: Any) -> tuple[str, Any] | None:
    """The path that a condition compares first, and the value without which it does not hold, whatever else it says.

    None where its text does not tell.
    """
    if not isinstance(when, str):
        return None
    try:
        return compile_template(when).demand
    except TemplateError:
        return None
