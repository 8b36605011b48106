"""What a value is around its rows: nothing, or a mapping such as a database's answer.

A tool's answer holds its rows more than once, under the names that people look for them. The rows become a table, once.
Where else they stand, and whatever little else there is, is written down beside it, so that the value can be put
together again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.payloads.kinds import kind_of

__all__ = ["Taken", "put_together", "take_apart"]

_MOST_REST_BYTES = 64 << 10

Columns = dict[str, list[Any]]


class Taken(NamedTuple):
    """A value's columns, and what is needed to put it together again if it was more than its rows."""

    columns: Columns
    shape: bytes | None


class _Shape(msgspec.Struct, frozen=True):
    """A mapping without its rows. `echoes` are the other places where they stand, by their keys."""

    rows: str
    rest: dict[str, Any]
    echoes: list[list[str]] = []


def take_apart(value: Any) -> Taken | None:
    """The columns of a value that has the form of a table, else None. Whether Arrow has types for them is not asked."""
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if not isinstance(value, list | tuple):
        return None
    columns = _from_mappings(value, tuple(value[0]) if value and isinstance(value[0], Mapping) else ())
    # Rows without any column would be lost: a table of no columns has no rows.
    return None if columns is None or (value and not columns) else Taken(columns, None)


def put_together(shape: bytes, names: list[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The mapping that was taken apart."""
    try:
        said = msgspec.json.decode(shape, type=_Shape)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"the table's metadata 'noetl' cannot be understood: {error}") from None
    listed = rows if said.rows == "mappings" else [[row[name] for name in names] for row in rows]
    value: dict[str, Any] = {"rows": listed, "columns": names, **said.rest}
    for *above, last in said.echoes:
        inner = value
        for key in above:
            inner = inner[key]
        inner[last] = listed
    return value


def _from_mapping(value: Mapping[Any, Any]) -> Taken | None:
    rows, names = value.get("rows"), value.get("columns")
    if not isinstance(rows, list | tuple) or not isinstance(names, list | tuple):
        return None
    if not all(type(name) is str for name in names) or len(set(names)) != len(names) or (rows and not names):
        return None
    spelling = "mappings" if all(isinstance(row, Mapping) for row in rows) else "lists"
    read = _from_mappings if spelling == "mappings" else _from_lists
    columns = read(rows, names)
    if columns is None:
        return None

    def is_echo(item: Any) -> bool:
        if item is rows:
            return True
        # Equal is not enough: 1 is equal to 1.0 and to true. Equal and of the same Arrow types prints the same.
        if not rows or type(item) is not type(rows) or item != rows:
            return False
        others = read(item, names)
        return others is not None and all(kind_of(others[name]) == kind_of(columns[name]) for name in names)

    rest, echoes = _without(value, is_echo)
    try:
        # A rest that is large should have been a payload of its own; as metadata it would be read with every schema.
        if len(canonical.encode(rest)) > _MOST_REST_BYTES:
            return None
        return Taken(columns, canonical.encode({"rows": spelling, "rest": rest, "echoes": echoes}))
    except canonical.NotCanonical:
        return None


def _without(value: Mapping[Any, Any], is_echo: Callable[[Any], bool]) -> tuple[dict[Any, Any], list[list[Any]]]:
    """The mapping without its rows and columns, and without the rows wherever else they stand, one level down too."""
    rest: dict[Any, Any] = {}
    echoes: list[list[Any]] = []
    for key, item in value.items():
        if key in ("rows", "columns"):
            continue
        if type(key) is str and is_echo(item):
            echoes.append([key])
        elif isinstance(item, Mapping):
            below = [inner for inner, deeper in item.items() if type(inner) is str and is_echo(deeper)]
            echoes += [[key, inner] for inner in below]
            rest[key] = {inner: deeper for inner, deeper in item.items() if inner not in below} if below else item
        else:
            rest[key] = item
    return rest, echoes


def _from_mappings(rows: Sequence[Any], names: Sequence[Any]) -> Columns | None:
    if not all(issubclass(kind, Mapping) for kind in set(map(type, rows))):
        return None
    if not all(type(name) is str for name in names):
        return None
    wanted = dict.fromkeys(names).keys()
    if not all(row.keys() == wanted for row in rows):
        return None
    return {name: [row[name] for row in rows] for name in names}


def _from_lists(rows: Sequence[Any], names: Sequence[Any]) -> Columns | None:
    if not all(isinstance(row, list | tuple) and len(row) == len(names) for row in rows):
        return None
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}
