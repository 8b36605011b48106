"""The anchor: a small file beside the database that remembers how far the ledger had come.

A database that is cut back as a whole (an old copy put in its place, a write-ahead log that lost its
end) is consistent in itself. The anchor is written after each commit without waiting for the disk, so
it may be behind but never ahead: a ledger that ends before its anchor has lost acknowledged events.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from noetl.errors import Corruption
from noetl.kernel.chain import mac_of

__all__ = ["Anchor"]

_LENGTH = 20 + 1 + 64 + 1


class Anchor:
    """`<position> <mac>` in a file of fixed length."""

    def __init__(self, path: Path, key: bytes | None) -> None:
        self._path = path
        self._key = key
        self._page: mmap.mmap | None = None

    def reached(self) -> int:
        """The position that the ledger had acknowledged, 0 when nothing is known.

        To be asked before the ledger is: in between another process may append and move the anchor.
        """
        try:
            text = self._path.read_text(encoding="ascii", errors="replace").split()
        except OSError:
            return 0
        if len(text) != 2 or not text[0].isdecimal():
            return 0
        position = int(text[0])
        # Torn, written under another key, or by nobody we know: it proves nothing.
        return position if text[1] == self._mac(position) else 0

    def check(self, reached: int, position: int) -> None:
        """Raise Corruption if the ledger ends before a position that it had acknowledged."""
        if reached > position:
            raise Corruption(
                f"the ledger ends at position {position}, but had reached {reached}: its end is missing",
                hint=f"restore ledger.db with its -wal file, or delete {self._path.name} to accept the loss",
            )

    def move(self, position: int) -> None:
        """Remember a committed position. Best effort: the database is what counts.

        The page is mapped: a write to the file would make the next commit's sync wait for it too.
        """
        with contextlib.suppress(OSError, ValueError):
            if self._page is None:
                self._page = self._map()
            self._page[:_LENGTH] = f"{position:020d} {self._mac(position)}\n".encode()

    def close(self) -> None:
        """Let go of the file."""
        if self._page is not None:
            self._page.close()
            self._page = None

    def _map(self) -> mmap.mmap:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(file).st_size != _LENGTH:
                os.ftruncate(file, _LENGTH)
            return mmap.mmap(file, _LENGTH)
        finally:
            os.close(file)

    def _mac(self, position: int) -> str:
        return mac_of(self._key or b"", f"anchor\0{position}".encode())
