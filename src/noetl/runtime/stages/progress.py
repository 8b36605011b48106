"""How far a stage has come: rows, frames, bytes, how fast, and how long that may still take."""

from __future__ import annotations

from collections import deque

import msgspec

from noetl.data.frame.protocol import StagePlan
from noetl.data.frame.table import FrameTable
from noetl.kernel.event import Json

__all__ = ["ExecutionProgress", "Pace", "StageProgress", "progress_of_row"]

_SECOND = 1_000_000
_WINDOW = 30
"""Samples that the pace is taken from, one a second or so."""


class StageProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One stage. Totals are not known of a cursor; rate and ETA are not known of a stage that is kept elsewhere."""

    stage_id: str
    step: str
    kind: str
    status: str
    frames: int
    frames_total: int | None = None
    frames_running: int | None = None
    frames_failed: int = 0
    frames_abandoned: int = 0
    rows: int
    rows_total: int | None = None
    rows_failed: int | None = None
    bytes: int | None = None
    rows_per_second: float | None = None
    eta_seconds: float | None = None
    task_failures: int | None = None
    host: str | None = None
    """Where its slots run: worker or spark; known of a stage that is kept here."""
    ui: str | None = None
    """The address of the Spark UI, where they run on Spark."""


class ExecutionProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of an execution, oldest first."""

    execution_id: str
    status: str
    stages: list[StageProgress]


class Pace:
    """How fast the rows of a stage go by, over the last half minute of them."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=_WINDOW)

    def note(self, now: int, rows: int) -> None:
        """So many rows are done by now."""
        self._samples.append((now, rows))

    def rate(self, now: int, rows: int) -> float | None:
        """Rows a second; None before there is anything to go by."""
        if not self._samples:
            return None
        then, before = self._samples[0]
        return (rows - before) * _SECOND / (now - then) if now > then else None

    def progress(self, plan: StagePlan, table: FrameTable, now: int) -> StageProgress:
        """The stage as its keeper sees it."""
        stats = table.tally.stats
        total, rate = table.rows_total, self.rate(now, stats.total)
        left = None if total is None else max(0, total - stats.total)
        return StageProgress(
            stage_id=str(plan.stage_id),
            step=plan.step,
            kind=plan.kind,
            status="OPEN",
            frames=stats.frames,
            frames_total=table.slices,
            frames_running=table.running,
            frames_failed=table.tally.frames_failed,
            frames_abandoned=table.abandoned,
            rows=stats.total,
            rows_total=total,
            rows_failed=stats.failed,
            bytes=stats.bytes,
            rows_per_second=None if rate is None else round(rate, 3),
            eta_seconds=round(left / rate, 1) if left is not None and rate else None,
            task_failures=table.tally.task_failures,
        )


def progress_of_row(row: Json) -> StageProgress:
    """The stage as its row in the projection has it."""
    return StageProgress(
        stage_id=str(row["stage_id"]),
        step=row.get("step") or "",
        kind=row.get("kind") or "",
        status=row.get("status") or "PENDING",
        frames=row.get("committed", 0) + row.get("failed", 0),
        frames_failed=row.get("failed", 0),
        frames_abandoned=row.get("abandoned", 0),
        rows=row.get("rows", 0),
    )
