"""The tiers of one process that are nearer than the store: memory, shared memory and disk.

Each is opened when it is first needed, because most runs need none of them and opening costs more than a small run.
What dead processes have left in shared memory is looked for at the start all the same; that is one directory listing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.errors import Unavailable
from noetl.payloads.blocking import in_thread
from noetl.payloads.memory import MemoryCache
from noetl.payloads.passed import PassedTables
from noetl.ports.clock import Clock
from noetl.settings import Payloads

if TYPE_CHECKING:
    from noetl.payloads.disk import DiskCache
    from noetl.payloads.shm import Segments

__all__ = ["SHARED_ROOT", "Caches", "Level", "say_once"]

SHARED_ROOT = Path("/dev/shm")  # noqa: S108 - shared memory, not a temporary file
SWEEP_SECONDS = 60.0

_log = logging.getLogger("noetl.payloads")


class Level(NamedTuple):
    """How full a tier is."""

    tier: str
    bytes: int
    budget: int


class Caches:
    """The nearer tiers within their budgets. A tier without a budget, or that cannot be opened, is None.

    `node_id` tells the machines apart that have no memory in common; `disk_directory` is None where the store itself is
    on this disk, and encrypted payloads are never copied to it.
    """

    def __init__(
        self,
        budgets: Payloads,
        clock: Clock,
        *,
        node_id: str | None = None,
        disk_directory: Path | None = None,
        shared_root: Path = SHARED_ROOT,
    ) -> None:
        self.memory: MemoryCache[Any] | None = MemoryCache(budgets.memory) if budgets.memory else None
        self.passed = PassedTables(budgets.shared_memory // 2)
        """Half of it: there has to be room for what comes next."""
        self.verify_ipc = budgets.verify_ipc
        self._budgets = budgets
        self._clock = clock
        self._node_id = node_id
        self._disk_directory = disk_directory if budgets.disk_cache and not budgets.encrypt else None
        self._shared_root = shared_root
        self._shared: Segments | None = None
        self._disk: DiskCache | None = None
        self._shared_is_off = not budgets.shared_memory
        self._opening = asyncio.Lock()

    def now(self) -> int:
        """The time, for what is kept for a while."""
        return self._clock.now()

    @property
    def shares(self) -> bool:
        """Whether there may be anything in shared memory."""
        return not self._shared_is_off

    async def shared(self) -> Segments | None:
        """The shared memory of this machine, without what dead processes have left there."""
        if self._shared is None and self.shares:
            async with self._opening:
                await self._open_shared()
        return self._shared

    async def disk(self) -> DiskCache | None:
        """The copies on this machine's disk."""
        if self._disk is None and self._disk_directory is not None:
            async with self._opening:
                await self._open_disk()
        return self._disk

    async def sweep(self) -> None:
        """Remove what dead processes have left in shared memory, and what nobody may read there any longer.

        A machine where nobody has left anything pays for one listing of a directory.
        """
        self.passed.sweep(self._clock.now())
        if not self.shares or not _has_segments(self._shared_root):
            return
        was_open = self._shared is not None
        shared = await self.shared()  # opening sweeps
        if shared is not None and was_open:
            try:
                await in_thread(shared.sweep)
            except OSError as error:
                say_once(f"shared memory cannot be swept: {error}")

    async def keep_swept(self) -> None:
        """Sweep every now and then until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            await self.sweep()

    async def levels(self) -> list[Level]:
        """How full each tier is that is in use."""
        found: list[Level] = []
        if self.memory is not None:
            found.append(Level("memory", self.memory.bytes_in_use, self._budgets.memory))
        if (shared := await self.shared()) is not None:
            found.append(Level("shared", await in_thread(lambda: shared.bytes_in_use), self._budgets.shared_memory))
        if (disk := await self.disk()) is not None:
            found.append(Level("disk", await in_thread(disk.estimate), self._budgets.disk_cache))
        return found

    async def close(self) -> None:
        """Give back what this process holds for others."""
        self.passed.clear()
        shared, self._shared, self._shared_is_off = self._shared, None, True
        if shared is not None:
            await in_thread(shared.close)

    async def _open_shared(self) -> None:
        from noetl.payloads.shm import Segments, is_available

        if self._shared is not None or self._shared_is_off:
            return
        if not is_available(self._shared_root):
            say_once(f"shared memory is off: there is no {self._shared_root}; tables are read from the store instead")
            self._shared_is_off = True
            return
        try:
            self._shared = await in_thread(
                Segments.open,
                self._clock,
                node_id=self._node_id or _machine(),
                budget_bytes=self._budgets.shared_memory,
                root=self._shared_root,
            )
        except OSError as error:
            say_once(f"shared memory is off: {error}")
            self._shared_is_off = True

    async def _open_disk(self) -> None:
        from noetl.payloads.disk import DiskCache

        directory, self._disk_directory = self._disk_directory, None  # one try: a disk that fails would fail each time
        if directory is None:
            return
        try:
            self._disk = await in_thread(DiskCache.open, directory, self._budgets.disk_cache)
        except Unavailable as error:
            say_once(f"the disk cache of payloads is off: {error}")


def _machine() -> str:
    """This machine since it was last started: shared memory does not outlive that."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        import socket

        return socket.gethostname()


@cache
def say_once(text: str) -> None:
    """Warn of something that will not change while this process lives."""
    _log.warning(text)


def _has_segments(root: Path) -> bool:
    """Whether this user has anything in shared memory; the lock file alone is nothing."""
    if sys.platform != "linux":
        return False
    prefix = f"noetl-{os.getuid()}-"
    try:
        with os.scandir(root) as entries:
            return any(entry.name.startswith(prefix) and entry.name != f"{prefix}lock" for entry in entries)
    except OSError:
        return False
