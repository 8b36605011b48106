"""Giving evidence: one step after the other, each into a file, and the index of all of them at the end."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import Conflict, Corruption, InvalidInput, NoetlError
from noetl.kernel import canonical
from noetl.kernel.fold import FOLD_VERSION, ROOT_ID
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time
from noetl.payloads.blocking import in_thread, storage_errors
from noetl.payloads.directories import new_directory
from noetl.ports.clock import Clock
from noetl.ports.ledger import Ledger
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.replay.evidence.artefacts import (
    FILES,
    INDEX,
    PAYLOADS,
    SIGNATURE,
    SURFACES,
    Adapter,
    Artefact,
    Config,
    Entry,
    Index,
    LiveRows,
    LogProof,
    Manifest,
    PayloadLine,
    PayloadResolution,
    PayloadTotals,
    ReplayState,
    Scope,
    Signature,
    Step,
)
from noetl.replay.evidence.derive import PayloadTally, Side, live_checksums_of, parity_of, row_id_of, side_of
from noetl.replay.evidence.findings import Findings
from noetl.replay.evidence.lines import Row, RowsWriter
from noetl.replay.evidence.sheets import pretty, read_sheet
from noetl.replay.service import Cutoff, Replayed, Replayer
from noetl.replay.verify import Verification, Verifier

if TYPE_CHECKING:
    from noetl.tools.secrets.signing import Signer

__all__ = ["EvidenceWriter", "Given"]

_PAGE = 1000
_TRIES = 5


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence that was given: of what, and whether all of it holds."""

    scope: Scope
    events: int
    rows: int
    payloads: int
    checksum: str
    chain: bool
    parity: bool
    resolved: bool
    index_sha256: str
    signed_by: str | None

    @property
    def ok(self) -> bool:
        """True when the log, the live rows and the payloads are what they should be."""
        return self.chain and self.parity and self.resolved


class _Moved(Exception):
    """The execution went on while its rows were read."""


class EvidenceWriter:
    """Writes evidence of executions into directories of their own.

    The state is folded from the first event on, up to where the stored rows are; like every replay that needs the
    memory of one state. All else goes through page by page.
    """

    def __init__(
        self,
        ledger: Ledger,
        projections: ProjectionStore,
        replayer: Replayer,
        verifier: Verifier,
        clock: Clock,
        *,
        adapter: Adapter,
        version: str,
    ) -> None:
        self._ledger = ledger
        self._projections = projections
        self._replayer = replayer
        self._verifier = verifier
        self._clock = clock
        self._adapter = adapter
        self._version = version

    async def write(self, root: Stream, target: Path, *, signer: Signer | None = None) -> Given:
        """Evidence of an execution as of now, in a new directory, which appears whole or not at all.

        It is written also if it shows that something does not hold. A `signer` signs the index.
        Raises InvalidInput for a directory that is there and for what is no execution, Conflict for an execution that
        goes on all the time, Corruption for a row that is no row any more.
        """
        if execution_of(root.stream_id) is None:
            raise InvalidInput(f"'{root.stream_id}' is not an execution", hint="evidence is given of executions")
        for _ in range(_TRIES):
            with contextlib.suppress(_Moved), new_directory(target) as draft:
                return await self._fill(root, draft, signer)
        raise Conflict(f"{root.stream_id} goes on while its rows are read", hint="try again when it has ended")

    async def _fill(self, root: Stream, draft: Path, signer: Signer | None) -> Given:
        steps = _Steps(self._clock)
        version = await self._version_of(root)
        files = {role: draft / name for role, name in FILES.items()}
        with steps.step("replay_state") as step:
            log = await self._verifier.verify_log(root)
            cutoff = Cutoff(position=version or await self._ledger.position())
            replayed = await self._replayer.replay(root, cutoff, snapshots=False)
            scope = _scope(root, replayed)
            head = await self._log_proof(root, log)
            side = await in_thread(_write_state, files["replay_state"], scope, replayed, head)
            step.holds = log.chain_ok
        with steps.step("live_rows"):
            await self._write_live_rows(root, scope, files["live_rows"])
            if await self._version_of(root) != version:
                raise _Moved
        with steps.step("live_rows_integrity") as step:
            live, step.holds = await in_thread(_examine_live_rows, files["live_rows"], replayed.registry_digest)
        with steps.step("live_checksums"):
            checksums = live_checksums_of(scope, live, replayed.registry_digest)
            await in_thread(_save, files["live_checksums"], pretty(checksums))
        with steps.step("parity") as step:
            parity = await in_thread(parity_of, scope, side, live, files["replay_state"], files["live_rows"])
            await in_thread(_save, files["parity"], pretty(parity))
            step.holds = parity.match
        with steps.step("payload_resolution") as step:
            totals = await self._write_payloads(root, scope, cutoff, files["payload_resolution"])
            step.holds = totals.all_resolved
        index = await in_thread(self._conclude, draft, scope, steps, signer)
        return Given(
            scope=scope,
            events=replayed.state.root.event_count,
            rows=sum(msgspec.structs.astuple(live.counts)),
            payloads=totals.total,
            checksum=side.checksum,
            chain=log.chain_ok,
            parity=parity.match,
            resolved=totals.all_resolved,
            index_sha256=index,
            signed_by=signer.public_key if signer else None,
        )

    async def _version_of(self, root: Stream) -> int | None:
        """The position up to which the stored rows are folded: every event changes the row of the execution itself."""
        rows = await self._projections.load(root, surface="execution", ids=[ROOT_ID])
        return rows[0].version if rows else None

    async def _log_proof(self, root: Stream, log: Verification) -> LogProof:
        head = await self._ledger.head(root)
        assert head is not None  # it was replayed
        return LogProof(
            chain="ok" if log.chain_ok else "broken",
            keyed=log.keyed,
            events=log.events,
            version=head.version,
            chain_hash=head.chain_hash,
            problems=[problem.what for problem in log.problems],
        )

    async def _write_live_rows(self, root: Stream, scope: Scope, file: Path) -> None:
        before = _before(LiveRows, scope=scope, adapter=self._adapter, exported_at=format_time(self._clock.now()))
        with storage_errors(file), file.open("xb") as sink:
            writer = RowsWriter(sink, SURFACES, before)
            for surface in SURFACES:
                async for page in self._pages(root, surface):
                    lines = await in_thread(_checked, page)
                    await in_thread(writer.add, surface, lines)
            counts = msgspec.to_builtins(side_of(writer.tally, "").counts)
            writer.finish({"row_counts": counts, "rows_checksum": writer.tally.rows_checksum()})

    async def _pages(self, root: Stream, surface: str) -> AsyncIterator[Sequence[ProjectionRow]]:
        after = ""
        while page := await self._projections.page(root, surface, after=after, limit=_PAGE):
            yield page
            after = page[-1].row_id

    async def _write_payloads(self, root: Stream, scope: Scope, cutoff: Cutoff, file: Path) -> PayloadTotals:
        tally = PayloadTally()
        with storage_errors(file), file.open("xb") as sink:
            writer = RowsWriter(sink, [PAYLOADS], _before(PayloadResolution, scope=scope))
            async for event_id, summary in self._replayer.payloads(root, cutoff):
                line = PayloadLine(event_id=event_id, **msgspec.structs.asdict(summary))
                tally.add(line)
                writer.add(PAYLOADS, [canonical.encode(msgspec.to_builtins(line))])
            totals = tally.totals()
            writer.finish({"summary": msgspec.to_builtins(totals)})
        return totals

    def _conclude(self, draft: Path, scope: Scope, steps: _Steps, signer: Signer | None) -> str:
        """The manifest in its final form, and then the index, which has its digest; returns that of the index."""
        with steps.step("artifact_index"):
            pass  # recorded before it is done: the index has the digest of the manifest
        _save(draft / FILES["manifest"], pretty(steps.manifest(scope, self._version, self._adapter)))
        index = Index(
            scope=scope,
            created_at=steps.ended_at,
            entries=[_entry(role, draft / name) for role, name in FILES.items()],
            signed_by=signer.public_key if signer else None,
            checksum="",
        )
        data = pretty(msgspec.structs.replace(index, checksum=index.own_checksum()))
        _save(draft / INDEX, data)
        sha256 = hashlib.sha256(data).hexdigest()
        if signer is not None:
            signature = Signature(public_key=signer.public_key, index_sha256=sha256, signature=signer.sign(data))
            _save(draft / SIGNATURE, pretty(signature))
        return sha256


class _Running:
    """A step that is being done."""

    def __init__(self) -> None:
        self.holds = True


class _Steps:
    """What was done so far. Time does not go back in it, whatever the clock does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = self._began = clock.now()
        self._steps: list[Step] = []

    @property
    def ended_at(self) -> str:
        """When the last step ended."""
        return format_time(self._now)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[_Running]:
        """Do one more."""
        began, running = self._tick(), _Running()
        yield running
        ended = self._tick()
        self._steps.append(
            Step(
                name=name,
                started_at=format_time(began),
                ended_at=format_time(ended),
                duration_us=ended - began,
                return_code=0 if running.holds else 4,
            )
        )

    def manifest(self, scope: Scope, version: str, adapter: Adapter) -> Manifest:
        """All of them."""
        return Manifest(
            scope=scope,
            config=Config(noetl=version, adapter=adapter),
            started_at=format_time(self._began),
            ended_at=self.ended_at,
            duration_us=self._now - self._began,
            steps=self._steps,
            return_code=0 if all(step.return_code == 0 for step in self._steps) else 4,
            artifacts={**FILES, "artifact_index": INDEX},
        )

    def _tick(self) -> int:
        self._now = max(self._now, self._clock.now())
        return self._now


def _scope(root: Stream, replayed: Replayed) -> Scope:
    row = replayed.state.root
    execution_id = execution_of(root.stream_id)
    assert execution_id is not None  # asked for at the beginning
    return Scope(
        tenant_id=root.tenant_id,
        organization_id=row.organization_id or "",
        project_id=row.project_id or "",
        execution_id=execution_id,
        position=replayed.position,
    )


def _before(kind: type[Artefact], **fields: Any) -> dict[str, Any]:
    """What stands before the rows: the defaults of a document, and these."""
    given = {name: msgspec.to_builtins(value) for name, value in fields.items()}
    names = kind.__struct_fields__[: kind.__struct_fields__.index("rows")]
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    return {name: given.get(name, defaults[name]) for name in names}


def _write_state(file: Path, scope: Scope, replayed: Replayed, log: LogProof) -> Side:
    row = replayed.state.root
    before = _before(
        ReplayState,
        scope=scope,
        status=row.status,
        event_count=row.event_count,
        last_event_id=row.last_event_id,
        last_ingest_time=replayed.last_ingest_time,
        events_folded=replayed.events_folded,
        fold_version=FOLD_VERSION,
        upcaster_registry_digest=replayed.registry_digest,
        log=log,
    )
    with storage_errors(file), file.open("xb") as sink:
        writer = RowsWriter(sink, SURFACES, before)
        for surface in SURFACES:
            rows = replayed.state.surfaces[surface].rows
            for key in sorted(rows, key=str):
                writer.add(surface, [rows[key].encoded()])
        side = side_of(writer.tally, replayed.registry_digest)
        writer.finish(
            {
                "row_counts": msgspec.to_builtins(side.counts),
                "rows_checksum": side.rows_checksum,
                "projection_checksums": msgspec.to_builtins(side.bundle),
                "checksum": side.checksum,
            }
        )
    if side.checksum != replayed.checksum():
        raise Corruption("the rows of the replayed state do not give its checksum")
    return side


def _checked(page: Sequence[ProjectionRow]) -> list[bytes]:
    """The rows as they are stored, if they are what a document can hold."""
    for stored in page:
        if not _is_sound(stored):
            raise Corruption(
                f"{stored.surface} row {stored.row_id} of {stored.root.stream_id} is not as it was written",
                hint="noetl verify says what differs, noetl repair makes it anew from the log",
            )
    return [stored.row for stored in page]


def _is_sound(stored: ProjectionRow) -> bool:
    try:
        value = canonical.decode(stored.row)
        whole = isinstance(value, dict) and canonical.encode(value) == stored.row
    except NoetlError:
        return False
    return whole and row_id_of(Row(stored.surface, stored.row, value)) == stored.row_id


def _examine_live_rows(file: Path, registry_digest: str) -> tuple[Side, bool]:
    """The live rows as they stand in the file now, and whether they hold."""
    findings = Findings()
    sheet = read_sheet(file, LiveRows, findings, fold_version=FOLD_VERSION)
    if sheet is None:
        raise Corruption(f"{findings.all[0]}", hint="the disk may be failing; try again elsewhere")
    return side_of(sheet.tally, registry_digest), not findings.all


def _save(file: Path, data: bytes) -> None:
    with storage_errors(file), file.open("xb") as sink:
        sink.write(data)


def _entry(role: str, file: Path) -> Entry:
    with storage_errors(file), file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
        return Entry(role=role, path=file.name, bytes=source.tell(), sha256=digest)
