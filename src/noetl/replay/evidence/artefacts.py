"""What evidence consists of: a document for each role, of which every field is known and none is missing.

Evidence is read years later, by others: integers are integers (ids too, because checksums cover them so), times are UTC
with microseconds, digests are lowercase SHA-256, and a field that nobody knows makes a document invalid.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec

from noetl.kernel import canonical
from noetl.kernel.fold.rows import BusinessObjectRow, CommandRow, ExecutionRow, FrameRow, LoopRow, StageRow

__all__ = [
    "FILES",
    "INDEX",
    "PAYLOADS",
    "SIGNATURE",
    "STEPS",
    "SURFACES",
    "Adapter",
    "Artefact",
    "Bundle",
    "Config",
    "Counts",
    "DifferingField",
    "Entry",
    "Index",
    "LiveChecksums",
    "LiveRows",
    "LogProof",
    "Manifest",
    "Parity",
    "PayloadLine",
    "PayloadResolution",
    "PayloadRows",
    "PayloadTotals",
    "ReplayState",
    "Rows",
    "Scope",
    "Signature",
    "Step",
    "SurfaceParities",
    "SurfaceParity",
]

SURFACES = ("business_objects", "commands", "execution", "frames", "loops", "stages")
"""In the order of the files, which is that of canonical JSON."""
PAYLOADS = "payloads"
INDEX = "index.json"
SIGNATURE = "signature.json"
FILES = {
    "replay_state": "replay-state.json",
    "live_rows": "live-rows.json",
    "live_checksums": "live-checksums.json",
    "parity": "parity.json",
    "payload_resolution": "payload-resolution.json",
    "manifest": "manifest.json",
}
"""The file of each role, in the order of the index."""
STEPS = (
    "replay_state",
    "live_rows",
    "live_rows_integrity",
    "live_checksums",
    "parity",
    "payload_resolution",
    "artifact_index",
)
"""What is done to give evidence, in this order."""

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Moment = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$")]
Code = Literal[0, 4]
PublicKey = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Artefact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of evidence, read strictly."""


class Scope(Artefact, frozen=True, kw_only=True):
    """Whose state this is, of which projection, and as of which position of its ledger."""

    tenant_id: str
    organization_id: str
    project_id: str
    execution_id: Count
    projection: Literal["execution"] = "execution"
    position: Count


class Counts(Artefact, frozen=True, kw_only=True):
    """How many rows each surface has."""

    execution: Count
    stages: Count
    frames: Count
    commands: Count
    business_objects: Count
    loops: Count


class Bundle(Artefact, frozen=True, kw_only=True):
    """The checksum of each surface."""

    execution: Sha256
    stages: Sha256
    frames: Sha256
    commands: Sha256
    business_objects: Sha256
    loops: Sha256


class Rows(Artefact, frozen=True, kw_only=True):
    """The rows of each surface in the order of their ids as text, each in canonical form on a line of its own."""

    business_objects: list[BusinessObjectRow]
    commands: list[CommandRow]
    execution: list[ExecutionRow]
    frames: list[FrameRow]
    loops: list[LoopRow]
    stages: list[StageRow]


# --- The replayed side ------------------------------------------------------------------------------------


class LogProof(Artefact, frozen=True, kw_only=True):
    """What a walk along the log has shown: of its checksums, chains and seals, and of its heads under the key."""

    chain: Literal["ok", "broken"]
    keyed: bool
    events: Count
    version: Count
    chain_hash: Sha256
    problems: list[str]


class ReplayState(Artefact, frozen=True, kw_only=True):
    """The state, folded from the first event on, and the checksums that stand for it."""

    schema: Literal["noetl.evidence.replay_state/1"] = "noetl.evidence.replay_state/1"
    checksum_algorithm: Literal["sha256"] = "sha256"
    scope: Scope
    status: str | None
    event_count: Count
    last_event_id: Count
    last_ingest_time: str
    events_folded: Count
    fold_version: Count
    upcaster_registry_digest: Sha256
    log: LogProof
    rows: Rows
    row_counts: Counts
    rows_checksum: Sha256
    projection_checksums: Bundle
    checksum: Sha256


# --- The live side ----------------------------------------------------------------------------------------


class Adapter(Artefact, frozen=True, kw_only=True):
    """What the live rows were read from."""

    name: str
    projector: str


class LiveRows(Artefact, frozen=True, kw_only=True):
    """The rows that the projector has stored, as any storage can give them."""

    schema: Literal["noetl.evidence.live_rows/1"] = "noetl.evidence.live_rows/1"
    scope: Scope
    adapter: Adapter
    exported_at: Moment
    rows: Rows
    row_counts: Counts
    rows_checksum: Sha256


class LiveChecksums(Artefact, frozen=True, kw_only=True):
    """What the live rows come to."""

    schema: Literal["noetl.evidence.live_checksums/1"] = "noetl.evidence.live_checksums/1"
    checksum_algorithm: Literal["sha256"] = "sha256"
    scope: Scope
    upcaster_registry_digest: Sha256
    row_counts: Counts
    rows_checksum: Sha256
    projection_checksums: Bundle
    checksum: Sha256


# --- Both -------------------------------------------------------------------------------------------------


class SurfaceParity(Artefact, frozen=True, kw_only=True):
    """One surface, on both sides."""

    match: bool
    live: Sha256
    replayed: Sha256
    live_rows: Count
    replayed_rows: Count


class SurfaceParities(Artefact, frozen=True, kw_only=True):
    """Every surface, on both sides."""

    execution: SurfaceParity
    stages: SurfaceParity
    frames: SurfaceParity
    commands: SurfaceParity
    business_objects: SurfaceParity
    loops: SurfaceParity


class DifferingField(Artefact, frozen=True, kw_only=True):
    """A field that differs, its values as the beginning of their canonical text; null where there is none."""

    surface: str
    row: str
    field: str
    live: str | None
    replayed: str | None


class Parity(Artefact, frozen=True, kw_only=True):
    """Whether the live rows are what the log says. Of the fields that differ the first hundred are listed."""

    schema: Literal["noetl.evidence.parity/1"] = "noetl.evidence.parity/1"
    scope: Scope
    match: bool
    live_checksum: Sha256
    replayed_checksum: Sha256
    surfaces: SurfaceParities
    differing_fields: Count
    differences: list[DifferingField]


class PayloadLine(Artefact, frozen=True, kw_only=True):
    """A payload that an event refers to, and what is wrong with the stored object, if anything."""

    event_id: Count
    uri: str
    sha256: Sha256
    bytes: Count
    rows: Count | None
    media_type: str
    error: str | None


class PayloadRows(Artefact, frozen=True, kw_only=True):
    """One for every event that has a payload, in the order in which they were committed."""

    payloads: list[PayloadLine]


class PayloadTotals(Artefact, frozen=True, kw_only=True):
    """What has become of all of them. `digest` is the sum that the execution's own row keeps."""

    total: Count
    unique: Count
    resolved: Count
    unresolved: Count
    all_resolved: bool
    digest: Sha256
    checksum: Sha256


class PayloadResolution(Artefact, frozen=True, kw_only=True):
    """Every payload was read through; this is what was found."""

    schema: Literal["noetl.evidence.payload_resolution/1"] = "noetl.evidence.payload_resolution/1"
    scope: Scope
    rows: PayloadRows
    summary: PayloadTotals


# --- How it came about, and the whole ---------------------------------------------------------------------


class Step(Artefact, frozen=True, kw_only=True):
    """One thing that was done, when, for how long, and with which outcome: 0 it holds, 4 it does not."""

    name: str
    started_at: Moment
    ended_at: Moment
    duration_us: Count
    return_code: Code


class Config(Artefact, frozen=True, kw_only=True):
    """By what, and how, the evidence was given."""

    noetl: str
    adapter: Adapter
    snapshots: Literal[False] = False


class Manifest(Artefact, frozen=True, kw_only=True):
    """What was done in which order. The step that makes the index is the last; it is recorded before it is done."""

    schema: Literal["noetl.evidence.manifest/1"] = "noetl.evidence.manifest/1"
    scope: Scope
    config: Config
    started_at: Moment
    ended_at: Moment
    duration_us: Count
    steps: list[Step]
    return_code: Code
    artifacts: dict[str, str]


class Entry(Artefact, frozen=True, kw_only=True):
    """One file, to the byte. Its path is relative to the index."""

    role: str
    path: str
    bytes: Count
    sha256: Sha256


class Index(Artefact, frozen=True, kw_only=True):
    """All files of the evidence. `checksum` is of this document in canonical form, without `checksum`.

    `signed_by` is the public key of who has signed this document, so that a signature cannot just be left out.
    """

    schema: Literal["noetl.evidence.index/1"] = "noetl.evidence.index/1"
    path_base: Literal["index"] = "index"
    scope: Scope
    created_at: Moment
    manifest: Literal["manifest.json"] = "manifest.json"
    entries: list[Entry]
    signed_by: PublicKey | None
    checksum: Sha256

    def own_checksum(self) -> str:
        """What `checksum` must be."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        del plain["checksum"]
        return hashlib.sha256(canonical.encode(plain)).hexdigest()


class Signature(Artefact, frozen=True, kw_only=True):
    """An Ed25519 signature over the bytes of the index."""

    schema: Literal["noetl.evidence.signature/1"] = "noetl.evidence.signature/1"
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: PublicKey
    index_sha256: Sha256
    signature: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]
