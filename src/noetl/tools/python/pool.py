"""Which process runs which call: a bounded number of them, kept warm, replaced when they break."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from noetl.tools.python.environments import Environment
from noetl.tools.python.process import CallTimedOut, ProcessGone, WorkerProcess
from noetl.tools.python.request import Reply, reply_of
from noetl.tools.python.worker.tables import is_sealed

__all__ = ["Answered", "Pool"]

_WARM = 2  # processes that are started ahead once a pool turns out to be used more than once


class Answered(msgspec.Struct, frozen=True):
    """A reply, and what the call printed."""

    reply: Reply
    logs: str
    file: int = -1
    """Where the table is that the reply speaks of; whoever has the answer closes it."""


class Pool:
    """At most `size` processes. Calls beyond that wait for one, in the order in which they came."""

    def __init__(self, size: int, memory_limit: int | None) -> None:
        self._size = size
        self._memory_limit = memory_limit
        self._slots = asyncio.Semaphore(size)
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._ending: set[asyncio.Task[str]] = set()
        self._used = False
        self._closed = False

    def prepare(self, environment: Environment) -> None:
        """Start a process now, so that the first call finds one. Raises OSError."""
        if not self._idle and not self._busy:
            self._idle.append(WorkerProcess(environment, self._memory_limit))

    async def run(
        self, environment: Environment, frame: bytes, limit: float | None, files: Sequence[int] = ()
    ) -> Answered:
        """Run a request on a free process. The time counts from when the process has the request.

        Raises CallTimedOut and ProcessGone, and OSError when no process can be started.
        """
        async with self._slots:
            process = self._take(environment)
            self._busy.add(process)
            try:
                answered = await self._exchange(process, frame, limit, files)
            except BaseException:
                self._discard(process)
                raise
            finally:
                self._busy.discard(process)
            if answered.reply.retire or not process.is_open:
                self._discard(process)
            else:
                self._idle.append(process)
            self._warm_up(environment)
            return answered

    async def close(self) -> None:
        """End every process, also those in the middle of a call."""
        self._closed = True
        for process in [*self._idle, *self._busy]:
            self._discard(process)
        self._idle.clear()
        while self._ending:
            await asyncio.gather(*self._ending)

    async def _exchange(
        self, process: WorkerProcess, frame: bytes, limit: float | None, files: Sequence[int]
    ) -> Answered:
        try:
            is_alone = len(self._busy) == 1
            reply = reply_of(await process.exchange(frame, limit, files, is_alone=is_alone))
            file = process.file() if reply.table is not None else -1
        except CallTimedOut:
            await process.ended()  # so that the next attempt does not overlap this one
            raise CallTimedOut(process.output.text()) from None
        except (ProcessGone, msgspec.MsgspecError) as error:
            how = await process.ended()
            raise ProcessGone(how, process.output.text()) from error
        logs = process.output.text() if process.output.total else ""
        if file >= 0 and not is_sealed(file):
            await _ended_for(process, file)
        return Answered(reply, logs, file)

    def _take(self, environment: Environment) -> WorkerProcess:
        """A process that fits, or a new one; while we hold a slot there is room for it."""
        if self._closed:
            raise ProcessGone("is not there: the tool has been closed", "")
        for index in range(len(self._idle) - 1, -1, -1):
            process = self._idle[index]
            if not process.alive:
                del self._idle[index]
                self._discard(process)
            elif process.environment == environment:
                return self._idle.pop(index)
        if len(self._idle) + len(self._busy) >= self._size:
            self._discard(self._idle.pop(0))
        return WorkerProcess(environment, self._memory_limit)

    def _warm_up(self, environment: Environment) -> None:
        """Start another process ahead, as soon as the caller has its answer."""
        if self._used and len(self._idle) + len(self._busy) < min(_WARM, self._size):
            asyncio.get_running_loop().call_soon(self._start_ahead, environment)
        self._used = True

    def _start_ahead(self, environment: Environment) -> None:
        if not self._closed and len(self._idle) + len(self._busy) < self._size:
            with suppress(OSError):  # whoever needs the process will be told
                self._idle.insert(0, WorkerProcess(environment, self._memory_limit))

    def _discard(self, process: WorkerProcess) -> None:
        process.kill()
        task = asyncio.get_running_loop().create_task(process.ended())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _ended_for(process: WorkerProcess, file: int) -> None:
    """A file that is not sealed can be cut off under those who have mapped it, as long as its writer lives."""
    try:
        await process.ended()
    except BaseException:
        os.close(file)
        raise
