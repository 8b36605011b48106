"""One process that runs user code: started by path, spoken to over a socket, one exchange at a time."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from noetl.tools.processes import BoundedOutput, kill_group, minimal_environment, signal_name
from noetl.tools.python.environments import Environment
from noetl.tools.python.request import HEADER_BYTES
from noetl.tools.python.worker.tables import receive, send

__all__ = ["CallTimedOut", "ProcessGone", "WorkerProcess"]

OUTPUT_LIMIT = 256 * 1024
_BOOT = str(Path(__file__).parent / "worker" / "boot.py")
_SMALL_READ = 1 << 16
_LARGE_READ = 1 << 20
_REAP_INTERVAL = 0.001
_LOOK_SECONDS = 0.0002
_QUICK_SECONDS = 0.0004
_HAS_CORES = (os.cpu_count() or 1) > 1


class ProcessGone(Exception):
    """The process ended, or stopped making sense, before it had answered."""


class CallTimedOut(Exception):
    """The call took longer than it may."""


class WorkerProcess:
    """A process, from its start to its end. Belongs to the event loop that was running when it was made.

    It is started in the thread of the loop: that takes about a millisecond, and a thread of its own would gain
    nothing. Raises OSError when the interpreter cannot be started.
    """

    def __init__(self, environment: Environment, memory_limit: int | None) -> None:
        self.environment = environment
        self.output = BoundedOutput(OUTPUT_LIMIT)
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[memoryview] | None = None
        self._is_quick = False
        self._received = bytearray()
        self._unsent = memoryview(b"")
        self._socket, theirs = socket.socketpair()
        self._side, their_side = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._printed, printing = os.pipe()
        self._socket.setblocking(False)
        self._side.setblocking(False)
        os.set_blocking(self._printed, False)
        self._has_printed = select.poll()  # asking costs a fifth of reading in vain, and is done twice in every call
        self._has_printed.register(self._printed, select.POLLIN)
        try:
            self._process = _start(
                environment, memory_limit, (theirs.fileno(), their_side.fileno(), lifeline), printing
            )
        except OSError:
            self._close_descriptors()
            raise
        finally:
            theirs.close()
            their_side.close()
            os.close(lifeline)
            os.close(printing)
        self._loop.add_reader(self._socket, self._readable)
        self._loop.add_reader(self._printed, self._drain)
        self._open = True

    @property
    def alive(self) -> bool:
        """Whether the next call may go to it."""
        return self._open and self._process.poll() is None

    @property
    def is_open(self) -> bool:
        """Whether it has neither gone nor been ended, as far as anybody has noticed."""
        return self._open

    @property
    def pid(self) -> int:
        """The process, which leads a group and a session of its own."""
        return self._process.pid

    async def exchange(
        self, frame: bytes, limit: float | None, files: Sequence[int] = (), *, is_alone: bool = False
    ) -> memoryview:
        """Send a request, with open files, and wait for its reply, whose bytes are valid until the next exchange.

        Where it `is_alone`, and the last reply has come at once, this one is looked for before the loop goes to sleep.
        Raises CallTimedOut or ProcessGone. After these, or when the caller is cancelled, the process must be ended.
        """
        if self._has_printed.poll(0):
            self.output.drain(self._printed)  # what an earlier call's threads have printed since belongs to nobody
        self.output.clear()
        self._received = bytearray()
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._answer = answer
        timer = None if limit is None else self._loop.call_later(limit, self._expire)
        try:
            if files:
                self._send_files(files)
            begun = time.perf_counter()
            self._send(frame)
            if is_alone and self._is_quick and _HAS_CORES:
                self._look(answer, begun + _LOOK_SECONDS)
            reply = await answer
            self._is_quick = time.perf_counter() - begun < _QUICK_SECONDS
            return reply
        finally:
            if timer is not None:
                timer.cancel()
            self._answer = None

    def file(self) -> int:
        """The open file that has come with the reply; it is the caller's. Raises ProcessGone if there is none."""
        try:
            found = receive(self._side.fileno())
        except OSError:
            found = []
        if len(found) != 1:
            for descriptor in found:
                os.close(descriptor)
            raise ProcessGone
        return found[0]

    def kill(self) -> None:
        """End the process and all it has started, now. A call that it is in gets to know."""
        self._fail(ProcessGone())
        self._close_descriptors()
        if self._process.returncode is None:
            kill_group(self.pid)

    async def ended(self) -> str:
        """Kill it if need be, wait until nothing of it is left, and say how it ended."""
        self.kill()
        while self._process.poll() is None:  # noqa: ASYNC110 - SIGKILL has been sent: once or twice
            await asyncio.sleep(_REAP_INTERVAL)
        return _ending(self._process.returncode)

    def _send_files(self, files: Sequence[int]) -> None:
        try:
            send(self._side.fileno(), files)
        except OSError:
            self._fail(ProcessGone())

    def _send(self, frame: bytes) -> None:
        try:
            sent = self._socket.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._fail(ProcessGone())
            return
        if sent < len(frame):
            self._unsent = memoryview(frame)[sent:]
            self._loop.add_writer(self._socket, self._writable)

    def _look(self, answer: asyncio.Future[memoryview], until: float) -> None:
        """Wait without sleep, on another core than the process: to wake up takes longer than most code."""
        while not answer.done() and time.perf_counter() < until:
            self._readable()

    def _writable(self) -> None:
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = memoryview(b"")
            self._fail(ProcessGone())
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        received = self._received
        try:
            chunk = self._socket.recv(_SMALL_READ if len(received) < _SMALL_READ else _LARGE_READ)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk or self._answer is None:  # the end, or an answer that nobody asked for
            self._leave()
            return
        received += chunk
        size = int.from_bytes(received[:HEADER_BYTES], "big") + HEADER_BYTES
        if len(received) == size:
            self._complete(self._answer)
        elif len(received) > max(size, HEADER_BYTES):
            self._leave()

    def _complete(self, answer: asyncio.Future[memoryview]) -> None:
        if self._has_printed.poll(0):
            self._drain()  # what was printed before the reply is there by now
        if not answer.done():
            answer.set_result(memoryview(self._received)[HEADER_BYTES:])

    def _drain(self) -> None:
        if not self.output.drain(self._printed):
            self._loop.remove_reader(self._printed)

    def _leave(self) -> None:
        self._open = False
        self._loop.remove_reader(self._socket)
        self._fail(ProcessGone())

    def _expire(self) -> None:
        kill_group(self.pid)
        self._drain()
        self._fail(CallTimedOut())

    def _fail(self, error: Exception) -> None:
        self._open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _close_descriptors(self) -> None:
        self._open = False
        if self._lifeline < 0:
            return
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._loop.remove_reader(self._printed)
        with suppress(OSError):
            self.output.drain(self._printed)
        self._socket.close()
        self._side.close()
        os.close(self._printed)
        os.close(self._lifeline)
        self._lifeline = -1


def _start(
    environment: Environment, memory_limit: int | None, passed: tuple[int, int, int], printing: int
) -> subprocess.Popen[bytes]:
    arguments = [*map(str, passed), str(memory_limit or 0), *environment.sys_path]
    return subprocess.Popen(
        [environment.interpreter, "-X", "utf8", _BOOT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=printing,
        stderr=printing,
        pass_fds=passed,
        start_new_session=True,
        env=minimal_environment(),
    )


def _ending(returncode: int | None) -> str:
    if returncode is None or returncode >= 0:
        return f"exited with code {returncode}"
    name = signal_name(-returncode)
    return f"was killed by {name}" + (" (out of memory, perhaps)" if name == "SIGKILL" else "")
