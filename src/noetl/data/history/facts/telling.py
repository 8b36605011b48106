"""Events as facts read them: in the spelling of today, with what a payload says under one name.

Facts are expressions of Spark SQL over the columns of the lake. What upcasters do for a fold is done here for the few
fields that facts take: older type names, and facts of the untyped schema that stand in `context`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from noetl.kernel.upcast import LEGACY_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["HEAD", "bare", "chosen", "number", "quoted", "real", "ref", "said", "seconds", "told", "where"]

_OLDER = {
    "playbook.initialized": ("playbook.started", "playbook_started", "playbook_initialized"),
    "playbook.completed": ("playbook_completed",),
    "playbook.failed": ("playbook_failed",),
    "playbook.cancelled": ("playbook_cancelled", "execution.cancelled"),
}
_IS_LEGACY = f"schema_name = '{LEGACY_SCHEMA}' AND schema_version = 1"
_SAID = (
    f"CASE WHEN {_IS_LEGACY} "
    "THEN coalesce(get_json_object(payload, '$.context'), get_json_object(payload, '$.payload'), payload) "
    "ELSE payload END"
)

HEAD: Mapping[str, str] = {
    "tenant_id": "tenant_id",
    "organization_id": "organization_id",
    "project_id": "project_id",
    "execution_id": "execution_id",
    "at": "event_time",
    "ingest_time": "ingest_time",
    "position": "position",
    "event_id": "event_id",
}
"""What every fact says first: whose it is, when it happened, and which event has recorded it."""


def told(events: DataFrame, types: Iterable[str]) -> DataFrame:
    """The events of these types, their type of today as `kind` and what they say as `said`."""
    from pyspark.sql import functions as fn

    spellings = [spelling for name in types for spelling in (name, *_OLDER.get(name, ()))]
    return bare(events.where(fn.col("event_type").isin(spellings))).withColumn("said", fn.expr(_SAID))


def bare(events: DataFrame) -> DataFrame:
    """Events with their type of today as `kind`."""
    from pyspark.sql import functions as fn

    older = {spelling: name for name, spellings in _OLDER.items() for spelling in spellings}
    cases = " ".join(f"WHEN '{spelling}' THEN '{name}'" for spelling, name in older.items())
    return events.withColumn("kind", fn.expr(f"CASE event_type {cases} ELSE event_type END"))


def chosen(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """A frame of these columns, by name and expression."""
    from pyspark.sql import functions as fn

    return frame.select(*(fn.expr(expression).alias(name) for name, expression in columns.items()))


def said(path: str, *, older: str | None = None) -> str:
    """A text that the payload has at a path; `older` is its name in the untyped schema."""
    found = f"get_json_object(said, '$.{path}')"
    return found if older is None else f"coalesce({found}, get_json_object(said, '$.{older}'))"


def number(expression: str) -> str:
    """A text as a whole number; null for anything else."""
    return f"try_cast({expression} AS bigint)"


def quoted(text: str) -> str:
    """A text as a literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def real(expression: str) -> str:
    """A text as a number; null for anything else."""
    return f"try_cast({expression} AS double)"


def ref(name: str) -> str:
    """What the reference to a payload says."""
    return f"get_json_object(payload_ref, '$.{name}')"


def seconds(to: str, since: str) -> str:
    """How long it is from one moment to another."""
    return f"(unix_micros({to}) - unix_micros({since})) / 1e6"


def where(names: Sequence[str] = ("region", "zone", "cluster", "node")) -> dict[str, str]:
    """Where a worker was, as far as it has said so."""
    return {name: f"get_json_object(meta, '$.locality.{name}')" for name in names}
