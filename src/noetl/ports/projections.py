"""ProjectionStore: rows that a fold left behind, and snapshots to fold on from."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from noetl.kernel.tail import Stream

__all__ = ["Page", "ProjectionRow", "ProjectionStore", "Saved", "Snapshot", "Wanted"]


Wanted = Mapping[Stream, Mapping[str, Collection[str]]]
"""Which rows: of each root and each of its surfaces some ids."""


class ProjectionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a surface, as its canonical JSON bytes. `version` is the position it was folded up to."""

    root: Stream
    surface: str
    row_id: str
    version: int
    row: bytes


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows were written, and how many lost against a version that was there already."""

    written: int
    stale: int


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows, and where the next ones begin."""

    rows: Sequence[ProjectionRow]
    next_cursor: str | None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A state to fold on from. An accelerator, never the authority: it says under what it was made."""

    root: Stream
    position: int
    event_count: int
    last_event_id: int
    last_ingest_time: str
    fold_version: int
    registry_digest: str
    payload_digest_root: str
    checksum: str
    created_at: str
    body: bytes
    mac: str | None = None

    def digest(self) -> bytes:
        """What the MAC covers: whose state this is, when, and its checksum under which rules."""
        fields = (
            self.root.tenant_id, self.root.stream_id, str(self.position), self.last_ingest_time,
            str(self.fold_version), self.registry_digest, self.checksum,
        )  # fmt: skip
        return hashlib.sha256("\0".join(("snapshot", *fields)).encode()).digest()


class ProjectionStore(Protocol):
    """Disposable, rebuildable rows. A write never takes a row back to an older version."""

    async def save(self, rows: Sequence[ProjectionRow], *, checkpoint: tuple[str, int] | None = None) -> Saved:
        """Write each row unless a row of the same or a later version is there, all in one transaction.

        `checkpoint` is a projector's name and the position it has reached; it is stored with the rows
        and, like them, never goes back.
        """
        ...

    async def replace(self, root: Stream, rows: Sequence[ProjectionRow], *, at: tuple[str, int]) -> bool:
        """Put rows in the place of all rows of a root; False, and nothing is done, if the projector has moved on.

        `at` is the projector and the position that it must still be at, up to which the rows were folded.
        """
        ...

    async def checkpoint(self, projector: str) -> int:
        """The position a projector has reached, 0 when it has not begun."""
        ...

    async def checkpoints(self) -> Mapping[str, int]:
        """How far every projector that has begun has come, by its name."""
        ...

    async def load(
        self, root: Stream, *, surface: str | None = None, ids: Sequence[str] | None = None
    ) -> Sequence[ProjectionRow]:
        """Rows of a root, of one surface or all, by surface and id. An id that has no row is left out."""
        ...

    async def pick(self, wanted: Wanted) -> Sequence[ProjectionRow]:
        """Rows of some roots by their ids, as of one moment. An id that has no row is left out."""
        ...

    async def page(self, root: Stream, surface: str, *, after: str = "", limit: int = 1000) -> Sequence[ProjectionRow]:
        """The next rows of one surface of a root, in order of id, for whoever cannot hold them all."""
        ...

    async def query(
        self,
        surface: str,
        *,
        tenant_id: str | None = None,
        where: Mapping[str, str | int] | None = None,
        cursor: str | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> Page:
        """Rows of a surface over all roots, whose top-level fields equal `where`, in order of root and id.

        A cursor stays good while rows are added or changed: paging never repeats or skips a row that
        was there all along.
        """
        ...

    async def count(
        self, surface: str, *, tenant_id: str, where: Mapping[str, str | int] | None = None, most: int = 1000
    ) -> int:
        """How many rows of a tenant `query` would give, counted up to `most`."""
        ...

    async def save_snapshot(self, snapshot: Snapshot) -> bool:
        """Keep a snapshot; False if one of this root at this position is there already."""
        ...

    async def snapshots(self, root: Stream, *, at_or_before: int, limit: int = 10) -> Sequence[Snapshot]:
        """A root's snapshots up to a position, newest first."""
        ...

    async def drop_snapshots(self, root: Stream, *, keep: int) -> int:
        """Forget all but the newest `keep` snapshots of a root."""
        ...
