"""A bulk replay from beginning to end: a directory with bundles, states and a summary."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from noetl.data.bulk.bounds import EVERYTHING, Bounds
from noetl.data.bulk.directory import new_directory
from noetl.data.bulk.parts import Part, PartFile, fault_of, together
from noetl.data.bulk.tasks import Work
from noetl.kernel.fold import FOLD_VERSION
from noetl.kernel.upcast import default_registry

__all__ = ["SUMMARY", "Origin", "Plan", "Summary", "replay_all"]

SUMMARY = "summary.json"
_SCHEMA = "noetl.bulk.replay/1"
Origin = Literal["lake", "ledger", "archive"]
Plan = Callable[[Work], tuple[Bounds, Callable[[], list[Part]]]]
"""Given the work, the bounds as they come to be there, and what runs the job."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a bulk replay has found. Two of the same moment have the same `checksum`, wherever they read from."""

    schema: str = _SCHEMA
    source: Origin
    position: int | None
    until: str | None
    tenant: str | None
    roots: int
    events: int
    failed: int
    statuses: dict[str, int]
    errors: list[str]
    checksum: str
    """The sum of the digests of tenant, root and checksum of every state, so that order does not matter."""
    upcaster_registry_digest: str
    fold_version: int
    seconds: float
    events_per_second: float
    files: list[PartFile]


def replay_all(
    out: Path,
    source: Origin,
    bounds: Bounds = EVERYTHING,
    *,
    plan: Plan,
    tenant: str | None = None,
    states: bool = True,
) -> Summary:
    """Fold everything that `plan` brings into a new directory, which is there when all of it is.

    Raises what a task has ended with, InvalidInput if the directory is not new.
    """
    with new_directory(out) as draft:
        bounds, run = plan(Work(want="files", bounds=bounds, directory=str(draft), states=states))
        begun = time.perf_counter()
        parts = run()
        seconds = time.perf_counter() - begun
        for fault in map(fault_of, parts):
            if fault is not None:
                raise fault
        found = _summary(together(parts), source, bounds, tenant, seconds)
        _settle(draft, found)
    return found


def _summary(whole: Part, source: Origin, bounds: Bounds, tenant: str | None, seconds: float) -> Summary:
    return Summary(
        source=source,
        position=bounds.position,
        until=bounds.until,
        tenant=tenant,
        roots=whole.roots,
        events=whole.events,
        failed=whole.failed,
        statuses=whole.statuses,
        errors=whole.errors,
        checksum=whole.total,
        upcaster_registry_digest=default_registry().digest(),
        fold_version=FOLD_VERSION,
        seconds=round(seconds, 3),
        events_per_second=round(whole.events / seconds, 1) if seconds else 0.0,
        files=whole.files,
    )


def _settle(draft: Path, found: Summary) -> None:
    """Leave nothing but what tasks have told: a task that ran twice has left files of both times."""
    kept = {file.path for file in found.files}
    for folder in ("bundles", "states"):
        for path in (draft / folder).glob("*"):
            if f"{folder}/{path.name}" not in kept:
                path.unlink()
    with (draft / SUMMARY).open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
