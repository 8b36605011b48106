"""What the tools that start processes have in common: a small environment, bounded output, an end for all of it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import msgspec

from noetl.observe import traces

__all__ = ["BoundedOutput", "kill_group", "minimal_environment", "printing", "signal_name", "trace_variables",
           "variables_of"]  # fmt: skip

printing: ContextVar[Callable[[str, bytes], None] | None] = ContextVar("printing", default=None)
"""Who hears at once what the processes of this call print: the name of the stream, and the bytes."""

# What a program needs to start and to print; nothing that could hold a secret of ours.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_NOT_IN_A_NAME = re.compile(r"\W", re.ASCII)
_CHUNK = 1 << 16
_DRAIN_READS = 4


def minimal_environment() -> dict[str, str]:
    """The environment that a process of a user starts with."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def trace_variables() -> dict[str, str]:
    """Where the running task is in a trace, as processes are told of it; nothing for one that is in none."""
    place = traces.current()
    return {} if place is None else {name.upper(): value for name, value in place.carried().items()}


def variables_of(auth: Any) -> dict[str, str]:
    """A credential as environment variables: its keys in upper case, below an alias `ALIAS_KEY`."""
    if not isinstance(auth, Mapping):
        return {}
    variables: dict[str, str] = {}
    for key, value in auth.items():
        if isinstance(value, Mapping):
            variables.update({_name(f"{key}_{inner}"): text for inner, text in variables_of(value).items()})
        elif value is not None:
            variables[_name(str(key))] = _text(value)
    return variables


def kill_group(pid: int) -> None:
    """End a process that leads a group, and all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class BoundedOutput:
    """The first bytes that were printed, and how many there were.

    The rest is counted and thrown away: a process that prints without end must not wait for us, nor fill our memory.
    """

    def __init__(self, limit: int, stream: str = "output") -> None:
        self._limit = limit
        self._stream = stream
        self._listener = printing.get()
        self._kept = bytearray()
        self.total = 0

    @property
    def dropped(self) -> int:
        """How many bytes were thrown away."""
        return self.total - len(self._kept)

    def add(self, chunk: bytes) -> None:
        """Keep as much of it as there is room for."""
        if self._listener is not None:
            self._listener(self._stream, chunk)
        self.total += len(chunk)
        self._kept += chunk[: self._limit - len(self._kept)]

    def drain(self, descriptor: int) -> bool:
        """Take what a non-blocking descriptor has to offer now, within reason; False at its end."""
        for _ in range(_DRAIN_READS):
            try:
                chunk = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return True
            self.add(chunk)
            if len(chunk) < _CHUNK:
                return bool(chunk)
        return True

    def text(self) -> str:
        """What was kept, with a note of what was not."""
        text = self._kept.decode("utf-8", "replace")
        return f"{text}\n... and {self.dropped} bytes more" if self.dropped else text

    def clear(self) -> None:
        """Forget everything; what comes now is printed by the call that asks for this."""
        self._listener = printing.get()
        self._kept.clear()
        self.total = 0


def _name(key: str) -> str:
    return _NOT_IN_A_NAME.sub("_", key).upper()


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text.replace("\0", "")
