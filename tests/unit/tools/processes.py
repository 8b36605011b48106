"""Processes, seen from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

PATIENCE = 30.0  # seconds; no test waits so long unless something is wrong


def is_gone(pid: int) -> bool:
    """No such process, or one that has ended and only waits to be counted."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - the kernel has no event for it
            await asyncio.sleep(0.005)
