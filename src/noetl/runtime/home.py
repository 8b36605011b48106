"""The home: one directory that holds everything an embedded installation has.

Deleting it deletes everything and nothing else. What is in it can be looked at with ordinary tools:
SQLite, JSON, Arrow.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from noetl.errors import Corruption, InvalidInput, Unavailable

__all__ = ["LEDGER_KEY", "LEDGER_KEY_FILE", "Home"]

LEDGER_KEY = "NOETL_LEDGER_KEY"
"""The key that seals the ledger, in hex, for homes that share one."""
LEDGER_KEY_FILE = "NOETL_LEDGER_KEY_FILE"
"""A file with that key."""
_KEY_BYTES = 32
_PRIVATE = 0o700
_GROUP_AND_OTHERS = 0o077


class Home:
    """Where things are kept. Nothing is created before somebody writes."""

    def __init__(self, path: Path, *, elsewhere: bool = False) -> None:
        self.path = path
        self.elsewhere = elsewhere
        """Whether the ledger is in a database that others share, and not in this directory."""
        self.ledger = path / "ledger.db"
        self.anchor = path / "ledger.anchor"
        self.payloads = path / "payloads"
        self.archive = path / "archive"
        self.wallet = path / "wallet"
        self._key_file = Path(os.environ.get(LEDGER_KEY_FILE) or self.wallet / "ledger.key")

    def create(self) -> None:
        """Make the directory and its wallet. Safe when several processes do it at once."""
        try:
            self.path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            self.wallet.mkdir(mode=_PRIVATE, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"cannot create the home {self.path}: {error.strerror}", hint="choose another with --home"
            ) from None
        if not self.has_ledger():
            self.ensure_key()

    def ensure_key(self) -> None:
        """Make the key for a ledger that is new, unless there is one."""
        if os.environ.get(LEDGER_KEY) or self._key_file.exists():
            return
        try:
            self._make_key()
        except OSError as error:
            raise Unavailable(f"cannot write {self._key_file}: {error.strerror}", hint="check the disk") from None

    def has_ledger(self) -> bool:
        """True when there is a ledger to open, or may be elsewhere.

        Raises Corruption when there was one here and its file is gone or empty. A file without a byte and without
        an anchor is what a first write leaves that was cut off at once.
        """
        if self.elsewhere or (self.ledger.exists() and self.ledger.stat().st_size):
            return True
        if self.anchor.exists():
            raise Corruption(
                f"{self.ledger} is {'empty' if self.ledger.exists() else 'gone'}, but had events",
                hint=f"restore it from a backup, or delete {self.anchor.name} to begin anew",
            )
        return False

    def mac_key(self) -> bytes | None:
        """The key that seals the ledger's heads, or None when there is none: then a ledger is unkeyed.

        It comes from the environment, from the file that the environment names, or from the wallet.
        """
        if given := os.environ.get(LEDGER_KEY):
            return _key_of(given.strip(), LEDGER_KEY, "make one with: openssl rand -hex 32")
        try:
            text = self._key_file.read_text(encoding="ascii", errors="replace").strip()
            mode = self._key_file.stat().st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"cannot read {self._key_file}: {error.strerror}", hint="check its permissions") from None
        if mode & _GROUP_AND_OTHERS:
            raise InvalidInput(f"{self._key_file} can be read by others", hint=f"chmod 600 {self._key_file}")
        return _key_of(text, str(self._key_file), "restore it from a backup")

    def _make_key(self) -> None:
        """Write the key whole or not at all; of two processes the first one's key stands."""
        draft = self._key_file.with_name(f".{self._key_file.name}.{os.getpid()}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(handle, secrets.token_hex(_KEY_BYTES).encode() + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)
        with contextlib.suppress(FileExistsError):
            os.link(draft, self._key_file)
        draft.unlink()


def _key_of(text: str, place: str, hint: str) -> bytes:
    """The key that a place holds. What it holds instead is never repeated."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise InvalidInput(f"{place} does not hold a key of {_KEY_BYTES} bytes in hex", hint=hint)
    return key
