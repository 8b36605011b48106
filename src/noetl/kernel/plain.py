"""Data for readers outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["with_number_ids", "with_text_ids"]

_USERS_OWN = frozenset(
    {"ctx", "workload", "result", "context", "input", "set", "attributes", "settings", "terms", "cursor"}
)


def with_text_ids(value: Any) -> Any:
    """The same data with ids as decimal text: 63 bits do not survive a reader that has only floats.

    What users put into an event stays as they wrote it.
    """
    if isinstance(value, Mapping):
        return {
            name: str(item)
            if name.endswith("_id") and isinstance(item, int) and not isinstance(item, bool)
            else (item if name in _USERS_OWN else with_text_ids(item))
            for name, item in value.items()
        }
    return [with_text_ids(item) for item in value] if isinstance(value, (list, tuple)) else value


def with_number_ids(value: Any) -> Any:
    """The way back: decimal text under the name of an id as a number. What was text before is a number now, too."""
    if isinstance(value, Mapping):
        return {
            name: int(item)
            if name.endswith("_id") and isinstance(item, str) and item.isascii() and item.isdecimal()
            else (item if name in _USERS_OWN else with_number_ids(item))
            for name, item in value.items()
        }
    return [with_number_ids(item) for item in value] if isinstance(value, (list, tuple)) else value
