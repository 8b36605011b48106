"""Presence: which server a home has, if any.

A server holds a lock for as long as it lives; the operating system takes it back from one that is killed. So a lock
that is held means a server that runs, whatever else lies in the home. `server.json` only says where it listens.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from noetl.errors import InvalidInput, Unavailable
from noetl.flocks import is_locked, locked_by_us

__all__ = ["Presence", "ServerRecord"]

_PRIVATE_FILE = 0o600


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A server as `server.json` describes it."""

    pid: int
    host: str
    port: int
    url: str
    auth: str
    started_at: str
    version: str


class Presence:
    """The lock and the record of one home's server."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._record = home / "server.json"
        self._lock = home / "server.lock"

    @contextlib.contextmanager
    def held(self) -> Iterator[Presence]:
        """Be this home's server until the end of the block. Raises InvalidInput when there is one already."""
        handle = self._open()
        try:
            if not locked_by_us(handle):
                raise self._taken()
            self._record.unlink(missing_ok=True)  # what a killed server has left behind
            yield self
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def announced(self, record: ServerRecord) -> Iterator[None]:
        """Say where the server listens, as a whole file or not at all, and take it back at the end."""
        draft = self._home / f".server.json.{os.getpid()}"
        try:
            draft.write_bytes(msgspec.json.encode(record) + b"\n")
            draft.chmod(_PRIVATE_FILE)
            draft.replace(self._record)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise Unavailable(f"cannot write {self._record}: {error.strerror}", hint="check the disk") from None
        try:
            yield
        finally:
            self._record.unlink(missing_ok=True)

    def running(self) -> ServerRecord | None:
        """The server that runs now, or None. One that has not begun to listen yet has no record either."""
        return self.record() if self.is_held() else None

    def is_held(self) -> bool:
        """Whether a server lives, listening or not."""
        return is_locked(self._lock)

    def record(self) -> ServerRecord | None:
        """What the record says, of a server that may be gone."""
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=ServerRecord)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _open(self) -> int:
        try:
            return os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)
        except OSError as error:
            raise Unavailable(f"cannot write {self._lock}: {error.strerror}", hint="check the home") from None

    def _taken(self) -> InvalidInput:
        record = self.record()
        where = f"at {record.url} (process {record.pid})" if record else "that is just starting or stopping"
        return InvalidInput(
            f"the home {self._home} has a server already, {where}",
            hint="noetl server stop ends it; or use another --home",
        )
