"""The objects of a bundle: their names, and what the documents among them say."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.archive.buffer import FileDigest, StreamEnd
from noetl.kernel.chain import StreamHead
from noetl.ports.archives import heads_digest

__all__ = [
    "ACCESS",
    "CONTROL_LOG",
    "EVENTS",
    "LINEAGE",
    "MANIFEST",
    "METRICS",
    "OBJECTS",
    "PARTS",
    "RESULTS",
    "SIGNATURE",
    "WORKER_LOG",
    "ArchivedExecution",
    "ArchivedHome",
    "Manifest",
    "ResultEntry",
    "ResultManifest",
    "Segment",
    "Signature",
    "document",
    "ends_digest",
    "object_path",
    "segment_path",
    "sidecar_path",
]

MANIFEST = "manifest.json"
EVENTS = "events/"
SIGNATURE = "signatures/manifest.sig"
RESULTS = "results/result-manifest.json"
OBJECTS = "results/objects"
CONTROL_LOG = "logs/control-plane.jsonl.zst"
WORKER_LOG = "logs/worker-events.jsonl.zst"
METRICS = "metrics/summary.json"
LINEAGE = "lineage/lineage.json"
ACCESS = "security/access-snapshot.json"
PARTS = (RESULTS, CONTROL_LOG, WORKER_LOG, METRICS, LINEAGE, ACCESS)
"""What every bundle has beside segments, manifest and signature."""


class Segment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of the events: `events` of them from number `first` on, counted from 0 through the bundle."""

    path: str
    sha256: str
    bytes: int
    raw_bytes: int
    first: int
    events: int
    first_event_id: str
    last_event_id: str


class ArchivedExecution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One execution of the bundle. Its events stand together, from number `first` on."""

    execution_id: str
    parent_execution_id: str | None
    path: str | None
    document_sha256: str | None
    status: str
    started_at: str | None
    ended_at: str | None
    first: int
    events: int
    streams: tuple[StreamEnd, ...]
    """Where its streams end, its own first."""


class ArchivedHome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the execution lived; the prefix of the bundle follows from it."""

    env: str
    region: str
    cell: str
    shard: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a bundle says of itself. Ids are decimal text. `created_at` is the time of the last event."""

    schema: Literal["noetl.archive/1"] = "noetl.archive/1"
    created_at: str
    tenant_id: str
    organization_id: str
    project_id: str
    execution_id: str
    home: ArchivedHome
    prefix: str
    events: int
    stream_heads: str
    executions: tuple[ArchivedExecution, ...]
    """The root first; callers before those they have called."""
    segments: tuple[Segment, ...]
    parts: dict[str, FileDigest]
    payloads: bool
    """Whether every object that the events refer to was copied when the bundle was made."""
    public_key: str

    @property
    def bytes(self) -> int:
        """What the objects come to that the manifest names."""
        return sum(part.bytes for part in self.parts.values()) + sum(segment.bytes for segment in self.segments)


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who has signed the manifest, and how."""

    schema: Literal["noetl.signature/1"] = "noetl.signature/1"
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str
    manifest_sha256: str
    signature: str


class ResultEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An object that an event refers to, as the reference has it."""

    event_id: str
    ref: dict[str, Any]
    copied: bool


class ResultManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every object that the events refer to, in the order they do."""

    schema: Literal["noetl.archive.results/1"] = "noetl.archive.results/1"
    objects: tuple[ResultEntry, ...]


def segment_path(number: int) -> str:
    """The path of a segment; they count from 1."""
    return f"{EVENTS}segment-{number:06d}.jsonl.zst"


def sidecar_path(segment: str) -> str:
    """Where the digest of a segment stands."""
    return segment.removesuffix(".jsonl.zst") + ".sha256"


def object_path(sha256: str) -> str:
    """Where a copy of an object is."""
    return f"{OBJECTS}/{sha256}"


def document(value: Any) -> bytes:
    """A document for people as much as for programs: the same value gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2) + b"\n"


def ends_digest(tenant_id: str, executions: tuple[ArchivedExecution, ...]) -> str:
    """What the ledger's heads of these executions must come to."""
    return heads_digest(
        StreamHead(tenant_id, end.stream_id, end.version, 0, end.count, end.chain_hash, "")
        for execution in executions
        for end in execution.streams
    )
