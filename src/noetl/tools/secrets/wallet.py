"""Where key-encryption keys are kept: a private file of the wallet, or the environment.

The file has one key a line in hex, the newest last. It is only ever replaced as a whole, by a rename after the new
content is on disk, so that a process killed at any moment leaves the file before or the file after.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from noetl.errors import InvalidInput, Unavailable
from noetl.tools.secrets.keys import Key, KeyRing, Keys, make_key, parse_key

__all__ = [
    "ARCHIVE_VARIABLE",
    "PAYLOAD_VARIABLE",
    "VARIABLE",
    "EnvironmentKeys",
    "KeyFile",
    "archive_keys",
    "payload_keys",
    "wallet_keys",
]

T = TypeVar("T")

VARIABLE = "NOETL_WALLET__KEK"
PAYLOAD_VARIABLE = "NOETL_PAYLOAD_KEY"
ARCHIVE_VARIABLE = "NOETL_ARCHIVE_KEY"
FILE_NAME = "kek.key"
PAYLOAD_FILE_NAME = "payloads.key"
ARCHIVE_FILE_NAME = "archive.key"
_PRIVATE_DIRECTORY = 0o700
_PRIVATE_FILE = 0o600
_GROUP_AND_OTHERS = 0o077


def wallet_keys(wallet: Path, environ: Mapping[str, str]) -> Keys:
    """The keys that hold: those of the environment where it gives any, or names a file, else those of the wallet's."""
    return _keys(wallet / FILE_NAME, environ, VARIABLE)


def payload_keys(wallet: Path, environ: Mapping[str, str]) -> Keys:
    """The keys that payloads are encrypted with, from the same kinds of places."""
    return _keys(wallet / PAYLOAD_FILE_NAME, environ, PAYLOAD_VARIABLE)


def archive_keys(wallet: Path, environ: Mapping[str, str]) -> Keys:
    """The keys that archives are signed with, from the same kinds of places."""
    return _keys(wallet / ARCHIVE_FILE_NAME, environ, ARCHIVE_VARIABLE)


def _keys(usual: Path, environ: Mapping[str, str], variable: str) -> Keys:
    if given := environ.get(variable):
        return EnvironmentKeys(given, variable)
    return KeyFile(Path(environ.get(f"{variable}_FILE") or usual))


class EnvironmentKeys:
    """Keys in a variable, separated by commas, the newest last. The process cannot change them; its owner can."""

    def __init__(self, text: str, variable: str = VARIABLE) -> None:
        self._text = text
        self._variable = variable

    async def load(self) -> KeyRing:
        """What the variable holds. Raises InvalidInput without repeating any of it."""
        keys = [parse_key(part) for part in self._text.split(",")]
        if any(key is None for key in keys):
            which = f"part {keys.index(None) + 1} of {self._variable}" if len(keys) > 1 else self._variable
            raise InvalidInput(
                f"{which} is not a key of 32 bytes in hex or base64", hint="make one with: openssl rand -hex 32"
            )
        return KeyRing(keys=tuple(key for key in keys if key is not None), place=self._variable)

    async def create(self) -> KeyRing:
        """What is there; a variable is never empty here."""
        return await self.load()

    async def renew(self, current: str) -> KeyRing:
        """The newer key must be in the variable already."""
        ring = await self.load()
        if ring.newest is None or ring.newest.id == current:
            raise InvalidInput(
                f"{self._variable} has no key that is newer than {current}",
                hint=f"make one with openssl rand -hex 32, set {self._variable}=<old>,<new> and rotate again; "
                "afterwards the new one alone is enough",
            )
        return ring

    async def retire(self, keep: str) -> KeyRing:
        """Nothing we could do; the owner of the variable takes the old keys out."""
        return await self.load()


class KeyFile:
    """A file of keys in the wallet, such as `wallet/kek.key`, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> KeyRing:
        """What the file holds; an empty ring when there is none. A file that others can read is refused."""
        return await asyncio.to_thread(self._read)

    async def create(self) -> KeyRing:
        """Make the file with a first key unless it is there."""
        return await self._change(self._create)

    async def renew(self, current: str) -> KeyRing:
        """Add a key unless a newer one is there."""
        return await self._change(lambda: self._renew(current))

    async def retire(self, keep: str) -> KeyRing:
        """Forget all keys but one."""
        return await self._change(lambda: self._write([self._read().need(keep)]))

    async def _change(self, change: Callable[[], KeyRing]) -> KeyRing:
        def work() -> KeyRing:
            try:
                with self._alone():
                    return change()
            except OSError as error:
                raise Unavailable(f"cannot write {self._path}: {error.strerror}", hint="check the disk") from None

        return await asyncio.to_thread(work)

    def _create(self) -> KeyRing:
        ring = self._read()
        return ring if ring.keys else self._write([make_key()])

    def _renew(self, current: str) -> KeyRing:
        ring = self._read()
        if ring.newest is None or ring.newest.id != current:
            return ring
        return self._write([*ring.keys, make_key()])

    def _read(self) -> KeyRing:
        try:
            text = self._path.read_text(encoding="ascii", errors="replace")
            mode = self._path.stat().st_mode
        except FileNotFoundError:
            return KeyRing(place=str(self._path))
        except OSError as error:
            raise Unavailable(f"cannot read {self._path}: {error.strerror}", hint="check its permissions") from None
        if mode & _GROUP_AND_OTHERS:
            raise InvalidInput(f"{self._path} can be read by others", hint=f"chmod 600 {self._path}")
        keys = [parse_key(line) for line in text.splitlines()]
        if not keys or any(key is None for key in keys):
            raise InvalidInput(
                f"{self._path} does not hold keys of 32 bytes in hex, one a line", hint="restore it from a backup"
            )
        return KeyRing(keys=tuple(key for key in keys if key is not None), place=str(self._path))

    def _write(self, keys: Sequence[Key]) -> KeyRing:
        """Replace the file as a whole: the new one is on disk before it gets the name."""
        draft = self._path.with_name(f".{self._path.name}.draft")
        draft.unlink(missing_ok=True)  # of somebody who was killed: we are alone here
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
        try:
            os.write(handle, "".join(f"{key.secret.hex()}\n" for key in keys).encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        draft.replace(self._path)
        _sync_directory(self._path.parent)
        return KeyRing(keys=tuple(keys), place=str(self._path))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One changer at a time, of all processes. The lock ends with its holder, however that ends."""
        self._path.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        handle = os.open(self._path.parent, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
