"""The two sides of a transfer, as its fields give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.data.stage.inputs import FILE_KEYS
from noetl.kernel.event import Json
from noetl.playbook.validate.stages import SOURCE_TYPES, TARGET_TYPES, TRANSFER_MODES
from noetl.tools.base import failed
from noetl.tools.values import BadField, Refused

__all__ = ["FILE_FORMATS", "SourceSide", "TargetSide", "source_of", "target_of"]

FILE_FORMATS = ("parquet", "csv", "jsonl")
CHUNK = 1000
_SHOWN = ("type", "url", "table", *FILE_KEYS, "resource", "database")
_SOURCES: Mapping[str, tuple[str, ...]] = {
    "http": ("url",),
    "postgres": ("query", "table"),
    "duckdb": ("query", "table"),
    "files": (*FILE_KEYS, "resource"),
    "result": ("rows", "ref"),
}
_MISSING = {"snowflake": "the snowflake connector"}


class SourceSide(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows come from."""

    type: str
    options: dict[str, Any]
    auth: Any = None

    @property
    def shown(self) -> Json:
        """As the result of a transfer has it."""
        return _shown(self.options)


class TargetSide(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go, and what becomes of those that are there."""

    type: str
    mode: str
    chunk: int
    table: str = ""
    mapping: dict[str, str] | None = None
    options: dict[str, Any]
    auth: Any = None

    @property
    def shown(self) -> Json:
        """As the result of a transfer has it."""
        return {**_shown(self.options), "mode": self.mode}


def source_of(fields: Json) -> SourceSide:
    """Read `source`. Raises Refused."""
    said, kind = _side(fields, "source", SOURCE_TYPES)
    if not any(said.get(name) is not None and said.get(name) != "" for name in _SOURCES[kind]):
        raise BadField(f"source of type {kind} needs {' or '.join(_SOURCES[kind])}", code="FIELD_MISSING")
    options = {name: value for name, value in said.items() if name != "auth"}
    return SourceSide(type=kind, options=options, auth=said.get("auth"))


def target_of(fields: Json) -> TargetSide:
    """Read `target`, `mode` and `chunk_size`. Raises Refused."""
    said, kind = _side(fields, "target", TARGET_TYPES)
    need = "path" if kind == "files" else "table"
    if not said.get(need) or not isinstance(said[need], str):
        raise BadField(f"target of type {kind} needs {need}", code="FIELD_MISSING")
    mode = str(fields.get("mode") or "append")
    if mode not in TRANSFER_MODES:
        raise BadField(f"mode: '{mode}' is none of {', '.join(TRANSFER_MODES)}")
    if kind == "files" and mode == "upsert":
        raise BadField("mode: files cannot be upserted; use append or replace, or a table")
    options = {name: value for name, value in said.items() if name != "auth"}
    return TargetSide(
        type=kind,
        mode=mode,
        chunk=_chunk(fields.get("chunk_size")),
        table=str(said.get("table") or ""),
        mapping=_mapping(said.get("mapping")),
        options=options,
        auth=said.get("auth"),
    )


def _side(fields: Json, name: str, types: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    said = fields.get(name)
    if said is None:
        raise BadField(f"a transfer task needs {name}", code="FIELD_MISSING")
    if not isinstance(said, Mapping):
        raise BadField(f"{name} must be a mapping, such as {{type: {types[0]}, ..}}")
    kind = str(said.get("type") or "")
    if kind not in types:
        raise BadField(f"{name}.type: '{kind}' is none of {', '.join(types)}")
    if kind in _MISSING:
        message = f"{name}.type: '{kind}' cannot run here: it needs {_MISSING[kind]}"
        raise Refused(failed("unknown", "KIND_UNAVAILABLE", message))
    return dict(said.items()), kind


def _mapping(said: Any) -> dict[str, str] | None:
    if said is None or said == {}:
        return None
    if not isinstance(said, Mapping) or not all(isinstance(value, str) and value for value in said.values()):
        raise BadField("target.mapping must be {target_column: source_field}, each a text")
    return {str(column): str(field) for column, field in said.items()}


def _chunk(said: Any) -> int:
    if said is None or said == "":
        return CHUNK
    try:
        number = int(str(said))
    except ValueError:
        number = 0
    if number < 1:
        raise BadField(f"chunk_size: '{said}' must be a whole number above 0")
    return number


def _shown(options: Mapping[str, Any]) -> Json:
    return {name: options[name] for name in _SHOWN if isinstance(options.get(name), str)}
