"""Results as tables: whatever a step has left behind that consists of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noetl.errors import InvalidInput, Unavailable
from noetl.kernel.lazy import plain

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["frame_of", "rows_of", "table_of"]

_VALUE = "value"


def rows_of(value: Any, step: str) -> list[Mapping[str, Any]]:
    """The rows in a result: its own `rows`, the results of a loop, a list, or one mapping as one row."""
    value = plain(value)
    found = _listed(value)
    if found is None:
        if isinstance(value, Mapping):
            return [value]
        raise InvalidInput(
            f"the result of step '{step}' is no table: it is {_kind(value)}",
            hint="run.step(name).value has it as it is",
        )
    items, columns = found
    if columns is not None and all(_is_sequence(item) and len(item) == len(columns) for item in items):
        return [dict(zip(columns, item, strict=True)) for item in items]
    if all(isinstance(item, Mapping) for item in items):
        return items
    if any(isinstance(item, Mapping) or _is_sequence(item) for item in items):
        odd = next(item for item in items if not isinstance(item, Mapping))
        raise InvalidInput(
            f"the result of step '{step}' is no table: among its rows is {_kind(odd)}",
            hint="a table is made of mappings, or of plain values",
        )
    return [{_VALUE: item} for item in items]


def table_of(value: Any, step: str) -> pa.Table:
    """A result as an Arrow table. A column that a row does not have is null there."""
    import pyarrow as pa

    from noetl.payloads.tables import TableValue

    if isinstance(value, TableValue) and value.native:
        return value.arrow
    rows = rows_of(value, step)
    names = list(dict.fromkeys(name for row in rows for name in row)) or _columns(value)
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidInput(
                f"column '{name}' of step '{step}' has values of different kinds: {error}",
                hint="make them one kind in the playbook, or take run.step(name).value",
            ) from None
    return pa.table(columns)


def frame_of(value: Any, step: str) -> pd.DataFrame:
    """A result as a pandas frame."""
    try:
        import pandas as pd  # noqa: F401 - Arrow imports it by itself, and says less when it is not there
    except ImportError:
        raise Unavailable("a data frame needs the package pandas", hint="pip install pandas, or use .table()") from None
    return table_of(value, step).to_pandas()


def _listed(value: Any) -> tuple[list[Any], list[str] | None] | None:
    """The list that is the table, with the names of its columns where the result says them."""
    if _is_sequence(value):
        return list(value), None
    if not isinstance(value, Mapping):
        return None
    for name in ("rows", "results", "data"):
        if _is_sequence(value.get(name)):
            return list(value[name]), _columns(value) or None
    inner = [item for name, item in value.items() if name.startswith("command_") and isinstance(item, Mapping)]
    if isinstance(value.get("data"), Mapping):
        inner.append(value["data"])
    return _listed(inner[-1]) if inner else None  # of several statements the last one's rows


def _columns(value: Any) -> list[str]:
    said = value.get("columns") if isinstance(value, Mapping) else None
    if said is None or not _is_sequence(said):
        return []
    names = [one.get("name") if isinstance(one, Mapping) else one for one in said]
    return [name for name in names if isinstance(name, str)]


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"of type {type(value).__name__}"
