"""Which source an input names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from noetl.data.sources.duckdb import open_duckdb
from noetl.data.sources.files import open_files
from noetl.data.sources.http import open_http
from noetl.data.sources.postgres import open_postgres
from noetl.data.sources.reading import Frame, Reading
from noetl.data.sources.results import open_ref, open_rows
from noetl.data.sources.table import open_table
from noetl.errors import InvalidInput
from noetl.payloads.resolver import scheme_of
from noetl.payloads.tables import Rows, TableValue
from noetl.playbook.words import SOURCES

__all__ = ["open_source"]

_FILES = ("path", "csv", "json", "parquet", "arrow", "orc", "text")
_Opening = Callable[[Any, Reading], Awaitable[Frame]]
_OTHERS: dict[str, _Opening] = {
    "table": open_table,
    "postgres": open_postgres,
    "duckdb": open_duckdb,
    "http": open_http,
    "rows": open_rows,
    "ref": open_ref,
}


async def open_source(said: Any, reading: Reading) -> Frame:
    """The DataFrame that an input stands for, as something that makes it. Raises NoetlError, Refused."""
    if isinstance(said, str):
        return await _named(said.strip(), reading)
    if isinstance(said, TableValue | Rows | list | tuple):
        return await open_rows(said, reading)
    if not isinstance(said, Mapping):
        raise InvalidInput("it names nothing: what it was rendered from is not there")
    if said.get("kind") == "result_ref":
        return await open_ref(said, reading)
    if _is_reference(said.get("ref")):
        return await open_ref(said["ref"], reading)
    if "columns" in said and "rows" in said:
        return await open_rows(said["rows"], reading)
    return await _mapped(dict(said.items()), reading)


async def _named(name: str, reading: Reading) -> Frame:
    if not name or "{{" in name:
        raise InvalidInput("it names nothing: what it was rendered from is not there")
    if scheme_of(name) in ("http", "https"):
        return await open_http({"url": name}, reading)
    return await (open_ref if scheme_of(name) == "noetl" else _path)(name, reading)


async def _path(name: str, reading: Reading) -> Frame:
    return await open_files(name, None, {}, reading)


async def _mapped(said: dict[str, Any], reading: Reading) -> Frame:
    keys = [key for key in SOURCES if key in said]
    if len(keys) != 1:
        raise InvalidInput(f"it needs exactly one of {', '.join(SOURCES)}, found {', '.join(said) or 'nothing'}")
    (key,) = keys
    value, options = said[key], {name: option for name, option in said.items() if name != key}
    if key in _OTHERS:
        return await _OTHERS[key]({**value, **options} if isinstance(value, dict) else value, reading)
    if isinstance(value, dict):
        options, value = {**options, **value}, value.get("path", "")
    if not isinstance(value, str) or not value.strip() or "{{" in value:
        raise InvalidInput(f"{key} names nothing: what it was rendered from is not there")
    if key == "resource":
        value = str(reading.means.dataset(value).path)
    return await open_files(value, key if key in _FILES and key != "path" else None, options, reading)


def _is_reference(value: Any) -> bool:
    if isinstance(value, Mapping):
        return value.get("kind") == "result_ref"
    return isinstance(value, str) and value.startswith("noetl://")
