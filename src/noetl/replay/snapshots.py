"""Snapshots: a state put down on the way, so that a replay need not begin at the beginning."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import zstandard

from noetl.errors import Corruption
from noetl.kernel.fold import FOLD_VERSION, State, state_checksum
from noetl.kernel.fold.state import SURFACES_BY_CATEGORY
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time
from noetl.ports.projections import Snapshot

__all__ = ["read_snapshot", "take_snapshot"]

_LEVEL = 1
_bodies = {
    category: msgspec.defstruct(
        f"{category.title()}Snapshot",
        [
            ("label", list[str | int]),
            *((name, list[shape.row]) for name, shape in surfaces.items()),  # type: ignore[name-defined]  # built at run time
        ],
    )
    for category, surfaces in SURFACES_BY_CATEGORY.items()
}


def take_snapshot(
    root: Stream, state: State, *, position: int, last_ingest_time: str, registry_digest: str, now: int
) -> Snapshot:
    """The state as bytes, with everything a reader needs to decide whether it may use them."""
    rows = {name: list(surface.rows.values()) for name, surface in state.surfaces.items()}
    head = state.root
    empty = Snapshot(
        root=root,
        position=position,
        event_count=head.event_count,
        last_event_id=head.last_event_id,
        last_ingest_time=last_ingest_time,
        fold_version=FOLD_VERSION,
        registry_digest=registry_digest,
        payload_digest_root=_payload_root(head.payload_count, head.payload_digest),
        checksum=state_checksum(state.bundle(), registry_digest),
        created_at=format_time(now),
        body=b"",
    )
    body = msgspec.json.encode({"label": _label(empty), **rows})
    return msgspec.structs.replace(empty, body=zstandard.ZstdCompressor(level=_LEVEL).compress(body))


def read_snapshot(snapshot: Snapshot, category: str) -> State:
    """The state a snapshot holds. Raises Corruption unless its rows give the checksum that was recorded."""
    try:
        rows: Any = msgspec.json.decode(_decompress(snapshot.body), type=_bodies[category])
    except (zstandard.ZstdError, msgspec.MsgspecError, MemoryError) as error:
        raise Corruption(f"cannot be read: {error}") from None
    state = State(category)
    for name, shape in SURFACES_BY_CATEGORY[category].items():
        state.surfaces[name].fill({shape.key_of(row): row for row in getattr(rows, name)})
    if state_checksum(state.bundle(), snapshot.registry_digest) != snapshot.checksum:
        raise Corruption("its rows do not give its checksum")
    if rows.label != _label(snapshot):
        raise Corruption("it was not taken at the position or the time that it claims")
    return state


def _label(snapshot: Snapshot) -> list[str | int]:
    """What the rows themselves do not tell, kept beside them so that it cannot come apart from them."""
    return [snapshot.position, snapshot.event_count, snapshot.last_event_id, snapshot.last_ingest_time]


def _decompress(body: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(body)


def _payload_root(count: int, total: str | None) -> str:
    return hashlib.sha256(f"payloads\0{count}\0{total or '0' * 64}".encode()).hexdigest()
