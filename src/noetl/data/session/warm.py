"""The warm session of a home: who keeps one, where it takes calls, and who uses it.

The keeper holds a lock for as long as it lives, and so does each user in a file of its own. What lies there without
a lock is what a killed process has left, and means nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from noetl.data.session.jobs import process_tag
from noetl.data.session.jvm import Gateway
from noetl.errors import InvalidInput, Unavailable
from noetl.flocks import is_locked, locked_by_us

__all__ = ["Warm", "WarmRecord"]

_PRIVATE_FILE = 0o600


class WarmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A warm session as `spark/session.json` describes it. `secret` lets a caller in, so only the owner reads it."""

    pid: int
    jvm_pid: int
    port: int
    secret: str
    master: str
    conf: dict[str, str]
    started_at: str
    spark: str
    noetl: str
    ui: str | None = None

    @property
    def gateway(self) -> Gateway:
        """Where it takes calls."""
        return Gateway(self.port, self.secret)


class Warm:
    """The lock, the record and the users of one home's warm session."""

    def __init__(self, home: Path) -> None:
        self._root = home / "spark"
        self._lock = self._root / "session.lock"
        self._file = self._root / "session.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the keeper until the end of the block. Raises InvalidInput when there is one already."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)
        except OSError as error:
            raise Unavailable(f"cannot write {self._lock}: {error.strerror}", hint="check the home") from None
        try:
            if not locked_by_us(handle):
                raise InvalidInput(f"{self._root} has a warm Spark session already", hint="noetl spark stop ends it")
            self._file.unlink(missing_ok=True)
            yield
        finally:
            self._file.unlink(missing_ok=True)
            os.close(handle)

    def announce(self, record: WarmRecord) -> None:
        """Say where the session takes calls, as a whole file or not at all."""
        draft = self._root / f".session.json.{os.getpid()}"
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE_FILE)
            with os.fdopen(handle, "wb") as stream:
                stream.write(msgspec.json.encode(record) + b"\n")
            draft.replace(self._file)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise Unavailable(f"cannot write {self._file}: {error.strerror}", hint="check the disk") from None

    def is_held(self) -> bool:
        """Whether a keeper lives, ready or not."""
        return is_locked(self._lock)

    def find(self) -> WarmRecord | None:
        """The session that is ready now, or None. The record of a killed keeper is removed."""
        if not self.is_held():
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)
            return None
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=WarmRecord)
        except (OSError, msgspec.MsgspecError):
            return None

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Be known as a user of the session until the end of the block, or of the process."""
        path = self._root / f"user-{process_tag()}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(handle)

    def users(self) -> list[str]:
        """The tags of the processes that use the session."""
        return [_tag(path) for path in self._user_files() if is_locked(path)]

    def take_dead_users(self) -> list[str]:
        """The tags of the processes that were killed while they used it, each told once."""
        dead = [path for path in self._user_files() if not is_locked(path)]
        for path in dead:
            path.unlink(missing_ok=True)
        return [_tag(path) for path in dead]

    def _user_files(self) -> list[Path]:
        return sorted(self._root.glob("user-*"))


def _tag(path: Path) -> str:
    return path.name.removeprefix("user-")
