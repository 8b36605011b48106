"""What Spark keeps in a home: scratch space, logs, and how it is told to write them.

A process that uses Spark has a directory of its own, held by a lock. The kernel gives the lock of a killed process
back, so whoever comes next knows which directories nobody needs any more.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from noetl.errors import Unavailable
from noetl.payloads.locks import try_lock

__all__ = ["Scratch", "Workspace"]

_PRIVATE = 0o700
_PRIVATE_FILE = 0o600
_LOG_BYTES = 10 << 20
_LOCK = "lock"

# To the file and nowhere else: what Spark warns about is for whoever looks for it, not for every run's terminal.
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.append = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}}{{UTC}} %p %c{{1}} [{process}]: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


class Workspace:
    """The part of a home that Spark uses."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "spark"
        self.logs = home / "logs"
        self.log = self.logs / "spark.log"
        self.output = self.logs / "spark.out"

    def open(self) -> Scratch:
        """A directory for this process; those of dead ones are removed. Raises Unavailable if it cannot be written."""
        try:
            for directory in (self.home, self.root, self.logs):
                directory.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            self._sweep()
            self._rotate()
            self.log.touch(_PRIVATE_FILE)
            return Scratch(self)
        except OSError as error:
            raise Unavailable(
                f"Spark cannot use {self.root}: {error.strerror}", hint="check the disk, or choose another --home"
            ) from error

    def _sweep(self) -> None:
        for directory in self.root.glob("scratch-*"):
            with contextlib.suppress(OSError):
                handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if try_lock(handle):
                        shutil.rmtree(directory, ignore_errors=True)
                finally:
                    os.close(handle)

    def _rotate(self) -> None:
        for file in (self.log, self.output):
            if file.exists() and file.stat().st_size > _LOG_BYTES:
                file.replace(file.with_name(f"{file.name}.1"))


class Scratch:
    """The directory of one process, until it is closed."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.path = workspace.root / f"scratch-{os.getpid()}-{secrets.token_hex(4)}"
        draft = workspace.root / f".{self.path.name}"
        draft.mkdir(mode=_PRIVATE)
        self._handle = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)
        try_lock(self._handle)
        draft.rename(self.path)  # under its name it is locked from the first moment

    def write(self, name: str, text: str) -> Path:
        """A file that only its owner reads: settings may hold keys."""
        file = self.path / name
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE_FILE)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        return file

    def logging(self) -> Path:
        """The file that tells Spark where to write its log."""
        log = str(self.workspace.log).replace("\\", "\\\\")
        return self.write("log4j2.properties", _LOG4J.format(file=log, process=os.getpid()))

    def close(self) -> None:
        """Remove the directory and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)
