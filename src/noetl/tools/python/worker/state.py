"""What a call may change in its process, and how it is put back for the next."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Mapping, Sequence

__all__ = ["ProcessState", "end_with_parent", "limit_memory"]

_F_SETSIG = 10  # Linux; the module does not name it


class ProcessState:
    """Environment variables, import path, working directory and output, as they were when the process began."""

    def __init__(self, path: Sequence[str]) -> None:
        self._environ = os.environ
        self._environment = dict(os.environ)
        # What is stored is compared: to ask for every variable decodes it, which costs more than most calls.
        self._stored: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]  # noqa: SLF001
        self._before = dict(self._stored)
        self._path = [*path, *sys.path]
        self._output = (sys.stdout, sys.stderr)
        for stream in self._output:
            # Whoever reads the output should have it up to the line, also when the process is killed.
            stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr] # text files

    def enter(self, directory: str, variables: Mapping[str, str]) -> None:
        """Make the process ready for a call."""
        os.chdir(directory)
        sys.path[:] = [directory, *self._path]
        if variables:
            os.environ.update(variables)

    def leave(self) -> bool:
        """Undo what the call, or its code, has done; False when it cannot be undone.

        Secrets in the environment go with it.
        """
        os.environ = self._environ  # noqa: B003 - code may have put another mapping in its place
        if self._stored != self._before:
            os.environ.clear()
            os.environ.update(self._environment)
        sys.stdout, sys.stderr = self._output
        try:
            for stream in self._output:
                stream.flush()
        except (ValueError, OSError):  # closed by user code
            return False
        return True


def limit_memory(limit: int) -> None:
    """Make an allocation beyond the limit a MemoryError; 0 is no limit."""
    if limit:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def end_with_parent(lifeline: int) -> None:
    """Have the kernel kill this process and all it starts when the other end of the pipe closes.

    Reading the channel tells an idle process that its parent is gone; this tells one that is inside user code.
    Where the kernel cannot (it is Linux's to offer), only the idle ones end.
    """
    os.set_inheritable(lifeline, False)
    if not sys.platform.startswith("linux"):
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
