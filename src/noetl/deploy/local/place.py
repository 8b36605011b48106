"""Where the files of a stack are: all of them in its home, or named there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from noetl.errors import InvalidInput, Unavailable

__all__ = ["Place", "read_json", "write_private"]

T = TypeVar("T")

_PRIVATE_FILE, _PRIVATE_DIRECTORY = 0o600, 0o700


class Place:
    """The home of a stack, which is the home of its server as well."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.record = home / "stack.json"
        self.environment = home / "stack.env"
        self.token = home / "stack.token"
        self.logs = home / "logs"
        self.run = home / "run"
        self.state = self.run / "state.json"
        self.nats = home / "nats"

    def create(self) -> None:
        """Make the directories. Raises InvalidInput for a home whose log is its own, Unavailable where it cannot."""
        if (self.home / "ledger.db").exists():
            raise InvalidInput(
                f"{self.home} has a log of its own, and the log of a stack is in Postgres",
                hint="choose another directory with --home",
            )
        try:
            for directory in (self.home, self.logs, self.run, self.nats):
                directory.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"cannot create {error.filename or self.home}: {error.strerror}", hint="choose another with --home"
            ) from None

    def lock_of(self, name: str) -> Path:
        """The lock that a process of this name holds while it lives."""
        return self.run / f"{name}.lock"

    def log_of(self, name: str) -> Path:
        """Where a process of this name says what it has to say."""
        return self.logs / ("server.out" if name == "server" else f"{name}.log")


def write_private(file: Path, text: str | bytes) -> None:
    """Write a file whole or not at all, for nobody else to read. Raises Unavailable."""
    data = text.encode() if isinstance(text, str) else text
    try:
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "wb") as writing:
                os.fchmod(writing.fileno(), _PRIVATE_FILE)
                writing.write(data)
                writing.flush()
                os.fsync(writing.fileno())
            Path(draft).replace(file)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Unavailable(f"cannot write {file}: {error.strerror}", hint="check the disk and permissions") from None


def read_json(file: Path, kind: type[T]) -> T | None:
    """What a file says, or None if it is not there or was cut off."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
