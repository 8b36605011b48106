"""An execution in the shape that scripts rely on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from noetl.runtime.embedded.runner import Finished
    from noetl.runtime.wiring import Embedded
    from noetl.settings import Settings

__all__ = ["ENDED", "Summary", "summary_of", "worker_slots"]

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an execution, or has become of it so far."""

    execution_id: int
    path: str | None = None
    status: str = "PENDING"
    result: Any = None
    error: dict[str, Any] | None = None
    started_at: str | None = None
    ended_at: str | None = None
    duration_ms: int | None = None
    events: int | None = None
    checksum: str | None = None
    forked_from: dict[str, Any] | None = None
    """The execution that this one has adopted results from, and where it left it."""
    waiting_for: str | None = None
    """What it waits for that is not there, such as workers of a pool."""

    @property
    def ended(self) -> bool:
        """True when nothing more will come."""
        return self.status in ENDED

    def document(self) -> dict[str, Any]:
        """The same as scripts get it: ids are text."""
        found = {**msgspec.to_builtins(self), "execution_id": str(self.execution_id)}
        if self.waiting_for is None:
            del found["waiting_for"]
        origin = found.pop("forked_from")
        if origin is not None:
            ids = {name: str(value) for name, value in origin.items() if name.endswith("_id")}
            found["forked_from"] = {**origin, **ids}
        return found


async def summary_of(embedded: Embedded, finished: Finished) -> Summary:
    """An execution with the times and the checksum that the log gives."""
    from noetl.kernel.streams import execution_stream
    from noetl.kernel.tail import Stream
    from noetl.kernel.time import parse_time
    from noetl.replay.stored import stored_checksum

    await embedded.projector.catch_up(snapshots=False)
    page = await embedded.projections.query("execution", where={"execution_id": finished.execution_id}, limit=1)
    row = msgspec.json.decode(page.rows[0].row) if page.rows else {}
    root = page.rows[0].root if page.rows else Stream("default", execution_stream(finished.execution_id))
    begun, ended = row.get("started_at"), row.get("ended_at")
    return Summary(
        execution_id=finished.execution_id,
        path=row.get("path"),
        status=finished.status,
        result=finished.shown,
        error=finished.error,
        started_at=begun,
        ended_at=ended,
        duration_ms=(parse_time(ended) - parse_time(begun)) // 1000 if begun and ended else None,
        events=row.get("event_count"),
        checksum=await stored_checksum(embedded.projections, root, embedded.registry.digest()),
        forked_from=row.get("forked_from"),
    )


def worker_slots(settings: Settings) -> int:
    """How many commands run at once."""
    return settings.tools.slots or max(4, 2 * (os.cpu_count() or 1))
