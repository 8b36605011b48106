"""The end of a process that has threads which Python has not started.

Those of obstore come back from a call by way of Python. One that is still on its way when the interpreter is taken down
is ended in the middle of that, which Rust answers by aborting the process: the command has done its work, and its exit
code says that it was killed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

__all__ = ["Ending"]

_WITH_THREADS = ("obstore",)


class Ending:
    """Leaves without taking the interpreter down, when everybody else who tidies up at the end has done so.

    It is asked last because it came first: make one before anything else.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """With which code to leave. As long as there is none, the interpreter ends as it always does."""
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.code is None or not any(name in sys.modules for name in _WITH_THREADS):
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                stream.flush()
        os._exit(self.code)
