"""Tier 2: copies of payloads on this machine's disk, for any number of processes.

A copy is `<root>/copies/<name[:2]>/<name>`, named by the sha256 of its object's key; its modification time is when it
was last read. It is renamed into place when it is whole and its digest is taken on every read, so nothing is synced and
a crash costs a copy at most.
The sum of sizes stands in a file under a lock. Whatever goes wrong between a sum and a file makes the sum too large,
never too small, and the next eviction counts anew.

Every method blocks; call them in a thread.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, Self

from noetl.observe import metrics
from noetl.payloads.blocking import storage_errors
from noetl.payloads.locks import locked

__all__ = ["DiskCache"]

_LARGEST_SHARE = 4
_KEPT_SHARE = 0.9  # evict a little more than needed, or every further copy would look at all the others
_COPIES = "copies"
_DRAFTS = "drafts"
_SUM = "sum"
_LOCK = "lock"
_ABANDONED_SECONDS = 3600
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class _Copy(NamedTuple):
    used_at: int
    size: int
    path: Path


class DiskCache:
    """Payloads by key and digest. What it returns has the digest that was asked for."""

    def __init__(self, root: Path, budget_bytes: int) -> None:
        self._root = root
        self._budget = budget_bytes

    @classmethod
    def open(cls, root: Path, budget_bytes: int) -> Self:
        """The cache at `root`, which only this user can read, within its budget and without abandoned drafts."""
        cache = cls(root, budget_bytes)
        with storage_errors(root):
            (root / _DRAFTS).mkdir(mode=0o700, parents=True, exist_ok=True)
            root.chmod(0o700)
            cache._sweep()
        return cache

    def get(self, key: str, sha256: str, size: int) -> mmap.mmap | bytes | Literal["miss", "damaged"]:
        """The bytes, mapped and verified. A copy that is not what it should be is removed."""
        path = self._path(key)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _ABSENT:
                return "miss"
            raise
        try:
            content = _verified(fd, sha256, size)
            if content is not None:
                with suppress(OSError):  # read-only, or removed a moment ago: then it is not used again anyway
                    os.utime(path)
                return content
        finally:
            os.close(fd)
        path.unlink(missing_ok=True)
        return "damaged"

    def put(self, key: str, data: bytes | memoryview) -> bool:
        """Keep a copy; False if it is too large, the disk is full or another process keeps the cache busy."""
        path = self._path(key)
        if len(data) > self._budget // _LARGEST_SHARE:
            return False
        if path.exists():
            return True
        draft = self._root / _DRAFTS / f"{os.getpid()}-{secrets.token_hex(8)}"
        try:
            _write(draft, data)
            return self._admit(draft, path, len(data))
        except OSError:
            return False
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def remove(self, key: str) -> None:
        """Give up a copy, if there is one."""
        self._path(key).unlink(missing_ok=True)

    @property
    def bytes_in_use(self) -> int:
        """The size of all copies, counted now."""
        return sum(copy.size for copy in self._copies())

    def estimate(self) -> int:
        """The size of all copies, as their sum was last written down."""
        total = self._sum()
        return self.bytes_in_use if total is None else total

    def _admit(self, draft: Path, path: Path, size: int) -> bool:
        with locked(self._root / _LOCK) as mine:
            if not mine:
                return False
            total = self._sum()
            if total is None or total + size > self._budget:
                total = self._evict(round(self._budget * _KEPT_SHARE) - size)
            self._write_sum(total + size)
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.replace(path)
            return True

    def _evict(self, room: int) -> int:
        """Remove the copies that were not read for longest until `room` bytes are left; how many there are."""
        copies = sorted(self._copies())
        total = sum(copy.size for copy in copies)
        removed = 0
        for copy in copies:
            if total <= room:
                break
            copy.path.unlink(missing_ok=True)
            total -= copy.size
            removed += 1
        if removed:
            metrics.count("noetl_payload_evictions_total", "disk", "budget", amount=removed)
        return total

    def _sweep(self) -> None:
        before = time.time() - _ABANDONED_SECONDS
        for draft in (self._root / _DRAFTS).iterdir():
            with suppress(FileNotFoundError):
                if draft.stat().st_mtime < before:
                    draft.unlink()
        with locked(self._root / _LOCK) as mine:
            if mine:
                self._write_sum(self._evict(self._budget))

    def _sum(self) -> int | None:
        try:
            return int((self._root / _SUM).read_text("ascii"))
        except (FileNotFoundError, ValueError):
            return None

    def _write_sum(self, total: int) -> None:
        (self._root / _SUM).write_text(str(total), "ascii")

    def _path(self, key: str) -> Path:
        """By the digest of the key: keys of other stores may be long, and begin or end alike."""
        name = hashlib.sha256(key.encode()).hexdigest()
        return self._root / _COPIES / name[:2] / name

    def _copies(self) -> Iterator[_Copy]:
        for path in (self._root / _COPIES).glob("*/*"):
            with suppress(FileNotFoundError):
                facts = path.lstat()
                if stat.S_ISREG(facts.st_mode):
                    yield _Copy(facts.st_mtime_ns, facts.st_size, path)


def _verified(fd: int, sha256: str, size: int) -> mmap.mmap | bytes | None:
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size != size:
        return None
    content = mmap.mmap(fd, size, access=mmap.ACCESS_READ) if size else b""  # nothing cannot be mapped
    return content if hashlib.sha256(content).hexdigest() == sha256 else None


def _write(path: Path, data: bytes | memoryview) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)
