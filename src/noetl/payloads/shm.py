"""Tier 1.5: tables in POSIX shared memory, for the other processes of this machine.

A segment is a file in `/dev/shm`, which is what `shm_open` makes on Linux; `segment.py` has its bytes. Its name is
derived from the payload it copies, its modification time is the end of its lease with the grace. A reader maps it and
reads nothing: the pages it touches are the ones the writer wrote, and they stay as long as a table refers to them,
whatever becomes of the name.

A segment is written under a draft's name and linked to its own when it is whole. Each producer keeps a lock on a file
of its own; the kernel drops it with the process, so whoever can take it knows that the producer is dead. Process ids
would not tell: the containers of a pod share the memory and not the ids, and a number is used again.

`multiprocessing.shared_memory` is no help here: its tracker unlinks what a reader has merely opened.
Every method blocks for a moment; call them in a thread.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from noetl.errors import InvalidInput
from noetl.kernel.event import IpcHint, PayloadRef
from noetl.kernel.time import format_time, parse_time
from noetl.observe import metrics
from noetl.payloads.caches import SHARED_ROOT
from noetl.payloads.locks import locked, try_lock
from noetl.payloads.schemas import schema_digest
from noetl.payloads.segment import PRODUCER_BYTES, fill_segment, open_segment, segment_size, stream_length
from noetl.ports.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BUDGET_BYTES", "GRACE_SECONDS", "LEASE_SECONDS", "ROOT", "Absent", "Segments", "Swept", "is_available"]

ROOT = SHARED_ROOT
BUDGET_BYTES = 1 << 30
GRACE_SECONDS = 30.0
LEASE_SECONDS = 300.0
_START_PATIENCE_SECONDS = 2.0

Absent = Literal["miss", "stale", "foreign", "damaged"]
"""Why there is no table: none there, its lease is over, it is on another machine, it is not what was written."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG})


class Swept(NamedTuple):
    """What a sweep has removed."""

    segments: int
    bytes: int


class _Entry(NamedTuple):
    path: Path
    inode: int
    size: int
    expires_at: int


def is_available(root: Path = ROOT) -> bool:
    """Whether this machine has shared memory that is a filesystem."""
    return sys.platform == "linux" and root.is_dir() and os.access(root, os.R_OK | os.W_OK | os.X_OK)


class Segments:
    """The shared tables of this machine, as one process sees them.

    The budget counts what all processes have put there. Whatever does not fit, or cannot be written, is not
    admitted: the durable copy is enough, and nobody waits.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        node_id: str,
        budget_bytes: int = BUDGET_BYTES,
        grace_seconds: float = GRACE_SECONDS,
        root: Path = ROOT,
    ) -> None:
        self._clock = clock
        self._node_id = node_id
        self._budget = budget_bytes
        self._grace = round(grace_seconds * 1_000_000)
        self._root = root
        self._prefix = f"noetl-{os.getuid()}-"
        self._producer = secrets.token_bytes(PRODUCER_BYTES)
        self._process = os.getpid()
        self._owner_fd = -1
        self._owner_guard = threading.Lock()

    @classmethod
    def open(
        cls,
        clock: Clock,
        *,
        node_id: str,
        budget_bytes: int = BUDGET_BYTES,
        grace_seconds: float = GRACE_SECONDS,
        root: Path = ROOT,
    ) -> Self:
        """The segments, without those whose producers are dead."""
        segments = cls(clock, node_id=node_id, budget_bytes=budget_bytes, grace_seconds=grace_seconds, root=root)
        segments.sweep(patience=_START_PATIENCE_SECONDS)
        return segments

    # --- Writing ---

    def put(self, sha256: str, table: pa.Table, *, lease_seconds: float = LEASE_SECONDS) -> IpcHint | None:
        """Share the table that the payload `sha256` holds; None if it was not admitted.

        A payload that is shared already is not written again, its lease is prolonged.
        """
        target = self._root / self._name(sha256)
        expires_at = self._clock.now() + round(lease_seconds * 1_000_000)
        digest = schema_digest(table.schema)
        try:
            length = self._prolong(target, digest, expires_at)
            if length is None:
                length = self._write(target, table, digest, expires_at)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            length = None
        if length is None:
            return None
        return IpcHint(
            node_id=self._node_id,
            shm_name=f"/{target.name}",
            schema_digest=digest,
            byte_length=length,
            row_count=table.num_rows,
            lease_expires_at=format_time(expires_at),
            producer=self._producer.hex(),
        )

    def _write(self, target: Path, table: pa.Table, digest: str, expires_at: int) -> int | None:
        """The length of the stream that was written, or that somebody else had written meanwhile."""
        length = stream_length(table)
        size = segment_size(length)
        draft = self._reserve(size)
        if draft is None:
            return None
        path, fd = draft
        try:
            os.posix_fallocate(fd, 0, size)  # memory that is not there is an error here, and a fatal signal later
            fill_segment(fd, table, size=size, digest=digest, producer=self._producer)
            self._stamp(fd, expires_at)
            try:
                os.link(path, target)
            except FileExistsError:  # another process was faster, with the same table
                return self._prolong(target, digest, expires_at)
            return length
        except FileNotFoundError:  # the draft was swept: this machine's memory was cleaned under our feet
            return None
        finally:
            os.close(fd)
            path.unlink(missing_ok=True)

    def _reserve(self, size: int) -> tuple[Path, int] | None:
        """A draft of the full size, which counts against the budget from now on."""
        with locked(self._root / f"{self._prefix}lock") as mine:
            if not mine:
                return None
            self._remove_expired()
            if self.bytes_in_use + size > self._budget:
                self._remove_dead()
                if self.bytes_in_use + size > self._budget:
                    return None
            self._own()
            path = self._root / f"{self._prefix}draft-{self._producer.hex()}-{secrets.token_hex(8)}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(fd, size)
            except BaseException:
                os.close(fd)
                path.unlink()
                raise
            return path, fd

    def _prolong(self, target: Path, digest: str, expires_at: int) -> int | None:
        """Extend the lease of a sound segment and say how long its stream is, which depends on who has written it.

        One that is not sound is removed: the writer who asks holds the right table.
        """
        with locked(self._root / f"{self._prefix}lock") as mine:
            opened = open_segment(target) if mine else None
            if opened is None:
                return None
            with opened as segment:
                if segment.problem(digest, None) is not None:
                    target.unlink(missing_ok=True)
                    return None
                if segment.expires_at - self._grace < expires_at:
                    self._stamp(segment.fd, expires_at)
                return segment.length

    def _stamp(self, fd: int, expires_at: int) -> None:
        end = (expires_at + self._grace) * 1000
        os.utime(fd, ns=(end, end))

    # --- Reading ---

    def get(self, ref: PayloadRef, *, verify: bool = False) -> pa.Table | Absent:
        """The table of a payload without a copy, or why there is none.

        Header, length and schema digest are always checked, the content only with `verify`.
        """
        hint = ref.ipc
        if hint is None:
            return "miss"
        if hint.node_id != self._node_id or hint.shm_name != f"/{self._name(ref.sha256)}":
            return "foreign"
        now = self._clock.now()
        if not _lasts(hint, now):
            return "stale"
        path = self._root / self._name(ref.sha256)
        opened = open_segment(path)
        if opened is None:
            return "miss"
        with opened as segment:
            if segment.expires_at <= now:
                return "stale"
            problem = segment.problem(hint.schema_digest or ref.schema_digest, hint.byte_length)
            table = None if problem is not None or (verify and not segment.is_intact()) else segment.table()
        if table is None:
            self.drop(ref.sha256)
            return "damaged"
        return table

    # --- Ends of leases, and of producers ---

    def drop(self, sha256: str) -> bool:
        """Take the segment's name away. Tables that were opened before stay whole."""
        with suppress(FileNotFoundError):
            (self._root / self._name(sha256)).unlink()
            return True
        return False

    def sweep(self, *, patience: float = 0.1) -> Swept:
        """Remove what dead producers have left, and segments whose lease and grace are over.

        Nothing, if another process is at work there for longer than `patience` seconds.
        """
        with locked(self._root / f"{self._prefix}lock", patience=patience) as mine:
            if not mine:
                return Swept(0, 0)
            expired, orphans = self._remove_expired(), self._remove_dead()
            return Swept(expired.segments + orphans.segments, expired.bytes + orphans.bytes)

    def leftovers(self) -> Swept:
        """What a sweep would remove."""
        now, entries = self._clock.now(), list(self._entries(self._prefix))
        owners = _Owners(self._root, self._prefix)
        found = [
            entry
            for entry in entries
            if (entry.expires_at <= now and self._is_segment(entry.path))
            or owners.is_dead(self._producer_of(entry.path))
        ]
        return Swept(len(found), sum(entry.size for entry in found))

    def close(self) -> None:
        """Take back what this process has shared; readers keep what they have opened."""
        if self._owner_fd < 0 or os.getpid() != self._process:  # a fork's copy owns nothing
            return
        for entry in self._entries(self._prefix):
            if self._producer_of(entry.path) == self._producer.hex():
                entry.path.unlink(missing_ok=True)
        self._owner_path.unlink(missing_ok=True)
        fd, self._owner_fd = self._owner_fd, -1
        os.close(fd)

    @property
    def bytes_in_use(self) -> int:
        """What all processes of this machine have in shared memory now, drafts included."""
        return sum({entry.inode: entry.size for entry in self._entries("")}.values())

    @property
    def _owner_path(self) -> Path:
        return self._root / f"{self._prefix}owner-{self._producer.hex()}"

    def _own(self) -> None:
        """Show that this process lives. Something may clean shared memory behind our back, so look each time."""
        with self._owner_guard:
            if self._owner_fd >= 0 and os.fstat(self._owner_fd).st_nlink:
                return
            if self._owner_fd >= 0:
                os.close(self._owner_fd)
            self._owner_fd = os.open(self._owner_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try_lock(self._owner_fd)

    def _remove_expired(self) -> Swept:
        now = self._clock.now()
        return _remove(
            [
                entry
                for entry in self._entries(self._prefix)
                if entry.expires_at <= now and self._is_segment(entry.path)
            ],
            "expired",
        )

    def _remove_dead(self) -> Swept:
        # Listed before their owners are looked at: a producer locks its file before it writes anything.
        entries = list(self._entries(self._prefix))
        owners = _Owners(self._root, self._prefix)
        removed = _remove([entry for entry in entries if owners.is_dead(self._producer_of(entry.path))], "orphan")
        owners.forget()
        return removed

    def _name(self, sha256: str) -> str:
        return f"{self._prefix}{sha256}"

    def _is_segment(self, path: Path) -> bool:
        return "-" not in path.name.removeprefix(self._prefix)

    def _producer_of(self, path: Path) -> str:
        """Who has written it; nobody, whom no lock shows to be alive, if it cannot be read."""
        kind, _, rest = path.name.removeprefix(self._prefix).partition("-")
        if kind == "draft":
            return rest.partition("-")[0]
        opened = open_segment(path)
        if opened is None:
            return ""
        with opened as segment:
            return segment.producer

    def _entries(self, prefix: str) -> Iterator[_Entry]:
        """Segments and drafts: of this user, or of everybody where no prefix is asked for."""
        with os.scandir(self._root) as found:
            for entry in found:
                if not entry.name.startswith(prefix or "noetl-") or not _holds_bytes(entry.name):
                    continue
                with suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(facts.st_mode):
                        yield _Entry(Path(entry.path), facts.st_ino, facts.st_size, facts.st_mtime_ns // 1000)


class _Owners:
    """Which producers are dead. Dead is who holds no lock on their file, or has none."""

    def __init__(self, root: Path, prefix: str) -> None:
        self._root = root
        self._start = f"{prefix}owner-"
        self._found: dict[str, bool] = {}

    def is_dead(self, producer: str) -> bool:
        if producer not in self._found:
            self._found[producer] = self._look(self._root / f"{self._start}{producer}")
        return self._found[producer]

    def forget(self) -> None:
        """Remove the files of the dead, after what they have left: a sweep that is killed is then done again."""
        for path in self._root.glob(f"{self._start}*"):
            if self.is_dead(path.name.removeprefix(self._start)):
                path.unlink(missing_ok=True)

    def _look(self, path: Path) -> bool:
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            return try_lock(fd)
        finally:
            os.close(fd)


def _remove(entries: list[_Entry], reason: str) -> Swept:
    for entry in entries:
        entry.path.unlink(missing_ok=True)
    if entries:
        metrics.count("noetl_payload_evictions_total", "shared", reason, amount=len(entries))
    return Swept(len(entries), sum(entry.size for entry in entries))


def _lasts(hint: IpcHint, now: int) -> bool:
    if hint.lease_expires_at is None:
        return True
    try:
        return parse_time(hint.lease_expires_at) > now
    except InvalidInput:
        return False


def _holds_bytes(name: str) -> bool:
    """True for segments and drafts, which count against the budget."""
    _, _, kind = name.removeprefix("noetl-").partition("-")
    return not kind.startswith(("lock", "owner-"))
