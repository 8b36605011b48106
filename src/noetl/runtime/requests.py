"""What a driver is asked for, on whose behalf, and what it hands out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from noetl.engine.fork import Fork
from noetl.kernel.event import Json

__all__ = ["KEPT_BY_SERVER", "SPARK_POOL", "Issued", "Origin", "Request"]

KEPT_BY_SERVER = frozenset({"stage", "spark", "transfer"})
"""Kinds of commands that stay where events are written and payloads are kept, also where workers run all others, unless
there are workers of their own pool."""
SPARK_POOL = "spark"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf events are written."""

    tenant_id: str = "default"
    organization_id: str = "default"
    project_id: str = "default"
    principal: str = "local"
    producer: str = "noetl://tenant/default"
    home: Json = {}
    server_url: str | None = None
    """Where the API is to be found, for playbooks that ask it; not known in local runs."""
    is_alone: bool = False
    """Whether the process that starts executions also runs their commands, although others share the log: then workers
    leave them alone for as long as it lives."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An execution to be started."""

    document: str
    file: str = "<text>"
    origin: str = "file"
    workload: Json = {}
    key: str | None = None
    parent_execution_id: int | None = None
    root_execution_id: int | None = None
    entry: str | None = None
    version: int | None = None
    catalog_id: int | None = None
    """Which entry of the catalog the document is, if it is from there."""
    principal: str | None = None
    """Who asked for it, where that is not whoever runs this process."""
    depth: int = 0
    execution_id: int | None = None
    """The id it is to have; a caller that has recorded one finds its child again by it."""
    fork: Fork | None = None
    """The execution it goes on from, and what it adopts of it."""
    authority: Json = {}
    """What it may use: `credentials`, `tool_kinds`, `grants`; a part that is left out is not limited."""
    trace: Mapping[str, str] = {}
    """The place in a trace that it is asked for from: `traceparent`, `tracestate`."""
    execution_pool: str | None = None
    """Whose workers run its commands, and those of what it calls."""


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A command that waits for a worker."""

    execution_id: int
    command_id: int
    step: str
    kind: str
