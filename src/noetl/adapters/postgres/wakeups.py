"""Who is told that the log has grown: by this process at once, by others through the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import psycopg

from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.writing import CHANNEL
from noetl.errors import NoetlError

__all__ = ["Wakeups"]

_LOOK_SECONDS = 5.0
"""How long a wake-up that was lost with its connection may stay unnoticed."""
_PAUSE_SECONDS = 0.5


class Wakeups:
    """Listens while anybody waits, on one connection for all of them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: set[asyncio.Event] = set()
        self._listening: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def on(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever the log may have grown."""
        moved = asyncio.Event()
        self._waiting.add(moved)
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        try:
            yield moved
        finally:
            self._waiting.discard(moved)

    @staticmethod
    async def wait(moved: asyncio.Event) -> None:
        """Return when it is set, or after a while all the same."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await moved.wait()

    def wake(self) -> None:
        """This process has written."""
        for moved in self._waiting:
            moved.set()

    async def close(self) -> None:
        """Listen no more, and wake everybody."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self.wake()

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(psycopg.Error, NoetlError, TimeoutError):
                connection = await self._database.connect()
                try:
                    await connection.execute(f"LISTEN {CHANNEL}".encode())
                    self.wake()  # what came before we listened
                    async for _ in connection.notifies():
                        self.wake()
                finally:
                    await connection.close()
            await asyncio.sleep(_PAUSE_SECONDS)
