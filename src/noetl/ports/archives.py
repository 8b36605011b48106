"""ArchiveIndex: which histories are archived, where their bundles are, and what each of them must be."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from noetl.errors import Conflict
from noetl.kernel.chain import StreamHead
from noetl.kernel.tail import Stream

__all__ = ["ArchiveEntry", "ArchiveIndex", "check_same", "heads_digest"]


class ArchiveEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle: the history of a root execution and of all that it has called, as it is in an object store."""

    root: Stream
    uri: str
    events: int
    first_position: int
    """Where the first and the last of its events stand in the ledger that they were taken from."""
    last_position: int
    stream_heads: str
    """The digest of where all its streams end; `heads_digest` of the ledger's heads gives it, too."""
    manifest_sha256: str
    bytes: int
    archived_at: datetime


class ArchiveIndex(Protocol):
    """Bundles by the root execution. An entry stays: what is archived is neither changed nor taken back."""

    async def put(self, entry: ArchiveEntry) -> bool:
        """Remember a bundle; False if it is there already, whoever put it and whenever.

        Raises Conflict if the root is archived with another history or another manifest.
        """
        ...

    async def get(self, root: Stream) -> ArchiveEntry | None:
        """The bundle of a root execution; None if it is not archived."""
        ...

    async def page(self, tenant_id: str, *, after: Stream | None = None, limit: int = 100) -> Sequence[ArchiveEntry]:
        """Bundles of a tenant in the order of their executions' ids, those after one of them."""
        ...


def heads_digest(heads: Iterable[StreamHead]) -> str:
    """One digest of where streams end, in whichever order they come. A stream without events ends nowhere."""
    ends = sorted((head.stream_id, head.version, head.count, head.chain_hash) for head in heads if head.count)
    text = "\n".join(f"{stream_id} {version} {count} {chain}" for stream_id, version, count, chain in ends)
    return hashlib.sha256(text.encode()).hexdigest()


def check_same(stored: ArchiveEntry, entry: ArchiveEntry) -> None:
    """Raise Conflict unless both are of the same bundle: positions and times are those of whoever wrote it down."""
    if (stored.stream_heads, stored.manifest_sha256) != (entry.stream_heads, entry.manifest_sha256):
        what = "history" if stored.stream_heads != entry.stream_heads else "manifest"
        raise Conflict(
            f"{entry.root.stream_id} is archived with another {what}: {stored.uri}",
            hint="an archive is never changed; noetl archive verify shows what is in it",
        )
