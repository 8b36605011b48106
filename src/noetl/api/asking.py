"""What callers ask for, and what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.api.sources import Reference, Source
from noetl.api.summaries import Summary
from noetl.observe import traces

__all__ = ["Again", "Job", "Outcome", "asked_from"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants to have run."""

    what: Source | Reference
    workload: dict[str, Any]
    key: str | None = None
    parent_execution_id: int | None = None
    timeout: float | None = None
    pool: str | None = None
    """Whose workers are to run it, on a server that has workers."""


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants to have tried again: from a step on, or from the one that failed."""

    step: str | None = None
    workload: dict[str, Any] = {}
    key: str | None = None
    timeout: float | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended, and whether it had to be cancelled because it took too long."""

    summary: Summary
    timed_out: bool = False


def asked_from(environ: Mapping[str, str]) -> dict[str, str]:
    """The place in a trace that a run is asked for from: the caller's, else what the process was told."""
    told = {name: environ.get(name.upper(), "") for name in ("traceparent", "tracestate")}
    place = traces.current() or traces.read(told)
    return {} if place is None else place.carried()
