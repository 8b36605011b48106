"""Where the rows of a task are to go, as its `output` says."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from noetl.data.means import Means
from noetl.errors import InvalidInput
from noetl.payloads.resolver import scheme_of
from noetl.playbook.validate.stages import WRITE_MODES
from noetl.tools.base import Call
from noetl.tools.loading import EFFECTS

__all__ = ["FILE_FORMS", "Target", "target_of"]

FILE_FORMS = ("parquet", "csv", "json", "orc")
BUCKETS = ("s3", "gs", "gcs", "az", "azure", "abfs", "abfss")
_KEYS = frozenset({"format", "mode", "partition_by", "resource", "path", "table", "key", "auth", "header", "delimiter",
                   "effect_table"})  # fmt: skip
_KEY_CHARS = 16


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """`kept` are payloads of ours, `files` a directory, `objects` a prefix of a bucket, `postgres` a table."""

    kind: Literal["kept", "files", "objects", "postgres"]
    form: str
    mode: str
    mark: str
    """Names what this task writes, the same for every attempt of it."""
    path: Path = Path()
    uri: str = ""
    partition_by: tuple[str, ...] = ()
    table: str = ""
    key: tuple[str, ...] = ()
    auth: Any = None
    effect_table: str | None = None
    options: dict[str, Any] = {}


def target_of(call: Call, means: Means) -> Target:
    """Read the `output` of a task. Raises InvalidInput."""
    said = call.fields.get("output") or {}
    if not isinstance(said, Mapping):
        raise InvalidInput("output must be a mapping", hint="output: {format: parquet, path: totals}")
    for name in said:
        if name not in _KEYS:
            raise InvalidInput(f"output has no '{name}'", hint=f"it has {', '.join(sorted(_KEYS))}")
    form = str(said.get("format") or ("postgres" if said.get("table") else "parquet"))
    if form not in (*FILE_FORMS, "postgres"):
        raise InvalidInput(
            f"output.format: '{form}' cannot be written", hint=f"one of {', '.join(FILE_FORMS)}, postgres"
        )
    mode = str(said.get("mode") or "overwrite")
    if mode not in WRITE_MODES:
        raise InvalidInput(f"output.mode: '{mode}' is none of {', '.join(WRITE_MODES)}")
    common: dict[str, Any] = {
        "form": form,
        "mode": mode,
        "mark": hashlib.sha256(call.effect_key.encode()).hexdigest()[:_KEY_CHARS],
        "partition_by": _names(said.get("partition_by")),
        "key": _names(said.get("key")),
        "options": {name: said[name] for name in ("header", "delimiter") if said.get(name) is not None},
    }
    if form == "postgres":
        return _table(said, common)
    return _files(said, common, call, means)


def _table(said: Mapping[str, Any], common: dict[str, Any]) -> Target:
    if not isinstance(said.get("table"), str) or not said["table"]:
        raise InvalidInput("output to postgres needs a table", hint="output: {format: postgres, table: public.totals}")
    if common["mode"] == "upsert" and not common["key"]:
        raise InvalidInput("output.mode upsert needs key", hint="key: [id] are the columns that tell rows apart")
    if common["partition_by"]:
        raise InvalidInput("output.partition_by is for files", hint="leave it out for postgres")
    # In the other modes a second delivery takes the place of the first, or leaves it.
    effects = said.get("effect_table") or (EFFECTS if common["mode"] in ("append", "error") else None)
    return Target(kind="postgres", table=said["table"], auth=said.get("auth"), effect_table=effects,
                  uri=f"postgres:{said['table']}", **common)  # fmt: skip


def _files(said: Mapping[str, Any], common: dict[str, Any], call: Call, means: Means) -> Target:
    if common["mode"] == "upsert":
        raise InvalidInput("files cannot be upserted", hint="use mode append or overwrite, or a table of postgres")
    path, resource = said.get("path"), said.get("resource")
    if path and resource:
        raise InvalidInput("output has both path and resource", hint="rows go to one place; remove one")
    if resource:
        dataset = means.dataset(str(resource))
        return Target(kind="files", path=dataset.path, uri=dataset.uri, **common)
    if path and scheme_of(str(path)) in BUCKETS:
        return Target(kind="objects", uri=_prefix(str(path)), auth=said.get("auth"), **common)
    if path:
        found = _directory(str(path), call.directory)
        return Target(kind="files", path=found, uri=found.as_uri(), **common)
    if common["form"] != "parquet" or common["partition_by"]:
        raise InvalidInput(
            "output.format and output.partition_by say how files are written, and output names none",
            hint="add path or resource",
        )
    return Target(kind="kept", **common)


def _directory(said: str, directory: Path) -> Path:
    if scheme_of(said) not in ("", "file"):
        raise InvalidInput(
            f"output.path: {scheme_of(said)}:// cannot be written by a spark task",
            hint=f"use a directory, or one of {', '.join(BUCKETS)}",
        )
    path = (directory / said.removeprefix("file://")).resolve()
    if path == directory.resolve() or path in directory.resolve().parents:
        raise InvalidInput(f"output.path: {path} holds more than this output", hint="name a directory of its own")
    return path


def _prefix(said: str) -> str:
    if any(sign in said for sign in "*?["):
        raise InvalidInput(f"output.path: '{said}' is a pattern", hint="name the prefix that the objects are to have")
    return said.rstrip("/")


def _names(value: Any) -> tuple[str, ...]:
    if not value:
        return ()
    return (value,) if isinstance(value, str) else tuple(map(str, value))
