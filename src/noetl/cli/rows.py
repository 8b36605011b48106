"""A result as it is asked for: all of it or a part, as JSON or as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from noetl.cli.output import note, print_json, table
from noetl.errors import InvalidInput, NotFound

__all__ = ["Look", "print_rows", "rows_in", "show"]

_MOST = 1000
_PLACES = ("rows", "preview", "results", "items")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to see of a result."""

    field: str | None = None
    as_table: bool = False
    columns: tuple[str, ...] = ()
    """Of a table only these, in this order."""
    as_json: bool = False


def show(document: Mapping[str, Any], step: str, look: Look) -> None:
    """Print a result, which is the `value` of a document, or the part of it that is asked for."""
    value = document["value"]
    if look.field is not None:
        value = _part(value, look.field, step)
        document = {"execution_id": document["execution_id"], "step": step, "field": look.field, "value": value}
    if look.as_json:
        print_json(document)
    elif look.as_table:
        print_rows(value, step, look.columns)
    else:
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _part(value: Any, path: str, step: str) -> Any:
    for name in path.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            there = ", ".join(map(str, value)) if isinstance(value, Mapping) else "no fields"
            raise NotFound(f"the result of step '{step}' has no '{path}'", hint=f"at '{name}' there is {there}")
    return value


def print_rows(value: Any, step: str, chosen: Sequence[str] = ()) -> None:
    """Print the rows of a step's result, and how many there are where these are only the first of them."""
    found, rows = rows_in(value, step)
    if missing := [name for name in chosen if name not in found]:
        raise NotFound(f"the rows of step '{step}' have no column '{missing[0]}'", hint=f"they have {', '.join(found)}")
    columns = chosen or found
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
    # What rows are called comes first: a log keeps their fields by the alphabet.
    return sorted(dict.fromkeys(in_order), key=lambda name: not _named(value) and name != "name"), found


def _named(value: Any) -> list[str]:
    """The columns in the order in which a spark task has them: the fields of rows have none in a log."""
    columns = value.get("columns") if isinstance(value, Mapping) else None
    return [str(one["name"]) for one in columns or () if isinstance(one, Mapping) and "name" in one]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
