"""Reading plain data by key: the only attributes and items there are.

No Python attribute is ever touched, so there is no way from a value to its class. A method exists only as a name
in a table (`methods`), looked at when a template calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl.kernel.lazy import LazySequence
from noetl.playbook.templates.views import MISSING, ResultView

__all__ = ["attribute", "item"]

_NUMBERS = (int, float)
_SEQUENCES = (list, tuple, str, LazySequence)
_GROUP = {"grouper": 0, "list": 1}  # what the filter groupby gives


def attribute(value: Any, name: str) -> Any:
    """What `value.name` reads, or MISSING."""
    if type(value) is dict:
        return value.get(name, MISSING)
    if isinstance(value, ResultView):
        return value.read(name)
    if isinstance(value, Mapping):
        return value.get(name, MISSING)
    if isinstance(value, tuple) and type(value) is not tuple and name in _GROUP:
        return value[_GROUP[name]]
    return MISSING


def item(value: Any, key: Any) -> Any:
    """What `value[key]` reads, or MISSING."""
    if isinstance(key, str):
        return attribute(value, key)
    if isinstance(value, ResultView):
        value = value.plain()
    if isinstance(value, _SEQUENCES) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else MISSING
    if isinstance(value, Mapping) and isinstance(key, _NUMBERS):
        return value.get(key, MISSING)
    return MISSING
