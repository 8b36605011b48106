"""The herald: it tells the queue of a command in the moment in which that is committed.

That every command comes to a worker is what the outbox sees to, and it tells of this one as well: the queue knows the
event that has asked for it, and takes it once. Here it is only told sooner. So whatever goes wrong here is left to the
outbox: a NATS that is away or slow, or a process that is killed right after its commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Envelope
from noetl.ports.queue import CommandQueue, QueuedCommand
from noetl.runtime.messaging import open_messaging
from noetl.runtime.process import process_name
from noetl.runtime.requeue import command_of
from noetl.settings import Settings

__all__ = ["Herald"]

_MOST_TELLING = 64
"""How many may be on their way. A queue that takes them more slowly than they are committed is left to the outbox."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0

_log = logging.getLogger("noetl.herald")


class Herald:
    """Puts commands into a queue once there is one. Nobody waits for it, and nobody hears of what it could not do."""

    def __init__(self, queue: CommandQueue | None = None) -> None:
        self._queue = queue
        self._telling: set[asyncio.Task[None]] = set()

    def tell(self, events: Sequence[Envelope]) -> None:
        """These events are committed: have the workers hear of their commands."""
        if self._queue is None or len(self._telling) >= _MOST_TELLING:
            return
        commands = [command for event in events if (command := command_of(event)) is not None]
        if commands:
            task = asyncio.create_task(self._put_in(self._queue, commands))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def serve(self, settings: Settings) -> None:
        """Keep a connection to the queue, until cancelled. A NATS that is not there is asked again and again."""
        pause, said = _FIRST_PAUSE, ""
        try:
            while True:
                try:
                    async with open_messaging(settings, name=process_name("server")) as messaging:
                        self._queue = messaging.queue
                        await asyncio.Event().wait()
                except NoetlError as error:
                    if said != error.message:
                        _log.warning("commands are told by the outbox alone: %s", error)
                    said = error.message
                    if not isinstance(error, Unavailable):
                        return  # it would be the same the next time
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._queue = None
            await self.close()

    async def close(self) -> None:
        """Tell nothing more."""
        telling = list(self._telling)
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)

    async def _put_in(self, queue: CommandQueue, commands: Sequence[QueuedCommand]) -> None:
        with contextlib.suppress(NoetlError):
            await queue.enqueue(commands)
