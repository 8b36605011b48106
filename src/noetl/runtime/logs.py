"""What tasks printed, kept beside the log of events: one file of JSON lines for each execution.

These files explain, they prove nothing: an event never refers to them, and deleting them loses no fact.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from noetl.kernel.names.segments import encode
from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.runtime.notices import Listener, Notice

__all__ = ["ExecutionLogs", "LogLine", "LogPage", "kept_logs", "log_file", "read_logs"]

_DEFAULT_TENANT = "default"
_MOST_OPEN = 32
_MOST_SCANNED = 16 << 20
_PRIVATE_DIRECTORY, _PRIVATE_FILE = 0o700, 0o600


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line that a task printed. `truncated` stands where it printed more than is kept."""

    time: str
    execution_id: str
    step: str
    task: str
    attempt: int
    stream: str
    text: str
    index: int | None = None
    truncated: bool = False


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines. The next ones begin at `after`; without `more` there are none yet."""

    lines: list[LogLine]
    after: int
    more: bool
    damaged: int = 0
    """Lines that cannot be read: a process was killed, or the disk was full, in the middle of one."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LogLine)


def log_file(home: Path, tenant_id: str, execution_id: int) -> Path:
    """Where the lines of an execution are. Ids are unique within a tenant only, so each tenant has a directory."""
    folder = home / "logs" / "executions"
    if tenant_id != _DEFAULT_TENANT:
        folder /= f"tenant={encode(tenant_id)}"
    return folder / f"{execution_id}.jsonl"


@contextlib.asynccontextmanager
async def kept_logs(home: Path, clock: Clock, complain: Callable[[str], None]) -> AsyncIterator[Listener]:
    """A listener that keeps what is printed below a home; `complain` is told once if that does not work."""
    logs = ExecutionLogs(home, clock, complain)
    try:
        yield logs.hear
    finally:
        logs.close()


class ExecutionLogs:
    """Writes down what workers hear. A disk that is full costs lines, never a step.

    Each notice is one write to the end of a file, so lines of several processes do not mix. The write goes to the
    page cache and is not waited for on disk.
    """

    def __init__(self, home: Path, clock: Clock, complain: Callable[[str], None]) -> None:
        self._home = home
        self._clock = clock
        self._complain = complain
        self._complained = False
        self._files: OrderedDict[Path, int] = OrderedDict()

    def hear(self, notice: Notice) -> None:
        """Keep what was printed; other notices are none of ours."""
        if notice.what != "log":
            return
        data = b"".join(_encoder.encode(line) + b"\n" for line in self._lines(notice))
        place = log_file(self._home, notice.tenant_id, notice.execution_id)
        try:
            self._write(place, data)
        except OSError as error:
            self._forget(place)
            if not self._complained:
                self._complained = True
                self._complain(f"what tasks print cannot be kept in {place}: {error.strerror}; the run goes on")

    def close(self) -> None:
        """Let go of the files."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _lines(self, notice: Notice) -> list[LogLine]:
        now = notice.at or format_time(self._clock.now())
        return [
            LogLine(
                time=now,
                execution_id=str(notice.execution_id),
                step=notice.step,
                task=notice.task,
                attempt=notice.attempt,
                stream=notice.stream,
                text=text,
                index=notice.index,
                truncated=notice.truncated,
            )
            for text in notice.text.split("\n")
        ]

    def _write(self, file: Path, data: bytes) -> None:
        """All of it, or an error; the next to open the file ends what was cut off."""
        handle = self._open(file)
        if (written := os.write(handle, data)) < len(data):
            os.write(handle, data[written:])  # says why the first one stopped

    def _open(self, file: Path) -> int:
        if file in self._files:
            self._files.move_to_end(file)
            return self._files[file]
        file.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE_FILE)
        self._files[file] = handle
        if len(self._files) > _MOST_OPEN:
            os.close(self._files.popitem(last=False)[1])
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            os.write(handle, b"\n")
        return handle

    def _forget(self, file: Path) -> None:
        handle = self._files.pop(file, None)
        if handle is not None:
            os.close(handle)


async def read_logs(
    home: Path,
    tenant_id: str,
    execution_id: int,
    step: str | None = None,
    after: int = 0,
    limit: int = 1000,
    *,
    task: str | None = None,
) -> LogPage:
    """Lines of an execution in the order they were printed, from the byte `after` on; none if it printed nothing.

    One call reads a bounded part of the file, so with a filter a page may be empty and still have more behind it.
    """
    return await asyncio.to_thread(_read, log_file(home, tenant_id, execution_id), step, task, after, limit)


def _read(file: Path, step: str | None, task: str | None, after: int, limit: int) -> LogPage:
    found: list[LogLine] = []
    damaged, begun, more = 0, after, False
    try:
        with file.open("rb") as stream:
            stream.seek(after)
            while (data := stream.readline()).endswith(b"\n"):
                if len(found) >= limit or after - begun >= _MOST_SCANNED:
                    more = True
                    break
                after += len(data)
                try:
                    line = _decoder.decode(data)
                except msgspec.MsgspecError:
                    damaged += data != b"\n"
                    continue
                if step in (None, line.step) and task in (None, line.task):
                    found.append(line)
    except FileNotFoundError:
        pass
    return LogPage(lines=found, after=after, more=more, damaged=damaged)
