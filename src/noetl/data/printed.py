"""What the code of a task prints, apart from what all others in this process do.

`main` runs in a thread of this process, and so do `show()` and `printSchema()`, which print too. While a task runs, the
process's standard streams pass on what its thread writes to the task, and everything else to where it always went.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TextIO

from noetl.tools.processes import BoundedOutput

__all__ = ["Printed", "capture"]

_MOST = 256 * 1024

_listening: ContextVar[BoundedOutput | None] = ContextVar("listening", default=None)
_lock = threading.Lock()
_users = 0


class Printed(BoundedOutput):
    """What a task prints. Made in the event loop, filled in another thread; whoever listens is told in the loop."""

    def __init__(self) -> None:
        super().__init__(_MOST)
        listener, loop = self._listener, asyncio.get_running_loop()

        def tell(stream: str, chunk: bytes) -> None:
            assert listener is not None
            with contextlib.suppress(RuntimeError):  # the loop has ended before the code did
                loop.call_soon_threadsafe(listener, stream, chunk)

        self._listener = None if listener is None else tell


class _Stream:
    """In place of `sys.stdout` or `sys.stderr`."""

    def __init__(self, usual: TextIO) -> None:
        self.usual = usual

    def write(self, text: str) -> int:
        output = _listening.get()
        if output is None:
            return self.usual.write(text)
        output.add(text.encode("utf-8", "replace"))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if _listening.get() is None:
            self.usual.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.usual, name)


@contextlib.contextmanager
def capture(output: BoundedOutput) -> Iterator[None]:
    """Let `output` have what this thread prints in the block."""
    _begin()
    token = _listening.set(output)
    try:
        yield
    finally:
        _listening.reset(token)
        _end()


def _begin() -> None:
    global _users  # noqa: PLW0603 - the streams are the process's
    with _lock:
        _users += 1
        for name in ("stdout", "stderr"):
            usual = getattr(sys, name)
            if usual is not None and not isinstance(usual, _Stream):
                setattr(sys, name, _Stream(usual))


def _end() -> None:
    """The last one puts the streams back, unless somebody has put others in their place since."""
    global _users  # noqa: PLW0603
    with _lock:
        _users -= 1
        for name in ("stdout", "stderr"):
            found = getattr(sys, name)
            if not _users and isinstance(found, _Stream):
                setattr(sys, name, found.usual)
