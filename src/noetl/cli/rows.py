"""A result that has rows, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl.cli.output import note, table
from noetl.errors import InvalidInput

__all__ = ["print_rows", "rows_in"]

_MOST = 1000
_PLACES = ("rows", "preview", "results", "items")


def print_rows(value: Any, step: str) -> None:
    """Print the rows of a step's result, and how many there are where these are only the first of them."""
    columns, rows = rows_in(value, step)
    numbers = {name for name in columns if any(_is_number(row.get(name)) for row in rows)}
    table(None, columns, ([row.get(name) for name in columns] for row in rows[:_MOST]), right=numbers)
    total = value.get("rows") if isinstance(value, Mapping) else None
    total = total if isinstance(total, int) else len(rows)
    if total > min(len(rows), _MOST):
        note(f"the first {min(len(rows), _MOST):,} of {total:,} rows")


def rows_in(value: Any, step: str) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Columns and rows of a result: a list of mappings, or a mapping that has one, such as the result of a query, of
    a stage or of a spark task. Raises InvalidInput if there are none."""
    found = value
    if isinstance(value, Mapping):
        lists = [value[name] for name in _PLACES if isinstance(value.get(name), list)]
        found = lists[0] if lists else [value]
        if "ref" in value and not lists:
            found = None
        names = value.get("columns")
        if found and isinstance(found[0], list) and isinstance(names, list):
            found = [dict(zip(names, row, strict=False)) for row in found]
    if not isinstance(found, list) or not all(isinstance(row, Mapping) for row in found):
        raise InvalidInput(f"the result of step '{step}' has no rows", hint="look at it without --table")
    in_order = [*_named(value), *(name for row in found[:_MOST] for name in row)]
    return list(dict.fromkeys(in_order)), found


def _named(value: Any) -> list[str]:
    """The columns in the order in which a spark task has them: the fields of rows have none in a log."""
    columns = value.get("columns") if isinstance(value, Mapping) else None
    return [str(one["name"]) for one in columns or () if isinstance(one, Mapping) and "name" in one]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
