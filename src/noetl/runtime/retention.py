"""Retention: what explains runs and proves nothing is not kept for ever."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from noetl.ports.clock import Clock

__all__ = ["forget_logs", "keep_forgetting"]

_DAY_SECONDS = 24 * 3600.0
_SECOND = 1_000_000

_log = logging.getLogger("noetl.retention")


async def keep_forgetting(home: Path, seconds: float, clock: Clock) -> None:
    """Forget old logs of a home now and once a day, until cancelled. They are this home's own: nobody else does."""
    while True:
        gone = await asyncio.to_thread(forget_logs, home, clock.now() / _SECOND - seconds)
        if gone:
            _log.info("%d logs of executions were older than %g days, and are gone", gone, seconds / _DAY_SECONDS)
        await clock.sleep(_DAY_SECONDS)


def forget_logs(home: Path, before: float) -> int:
    """Delete the logs of executions that have printed nothing since a moment, in seconds; how many went.

    One that cannot be deleted stays until the next time.
    """
    gone = 0
    for file in (home / "logs" / "executions").rglob("*.jsonl"):
        try:
            if file.stat().st_mtime < before:
                file.unlink()
                gone += 1
        except FileNotFoundError:
            continue  # somebody else was faster
        except OSError as error:
            _log.warning("%s is old, and cannot be deleted: %s", file, error.strerror)
    return gone
