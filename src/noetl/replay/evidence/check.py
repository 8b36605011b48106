"""Checking evidence: anywhere, with nothing but its files.

Whatever follows from something else is made again and compared: checksums from rows, parity from both sides, totals
from lines, the index from the files. All that does not hold is named, not just the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from noetl.errors import NotFound
from noetl.kernel.time import is_canonical_time, parse_time
from noetl.replay.evidence.artefacts import (
    FILES,
    INDEX,
    STEPS,
    Adapter,
    Artefact,
    LiveChecksums,
    LiveRows,
    Manifest,
    Parity,
    PayloadResolution,
    ReplayState,
    Scope,
    Step,
)
from noetl.replay.evidence.derive import Side, live_checksums_of, parity_of, side_of
from noetl.replay.evidence.files import Files
from noetl.replay.evidence.findings import Finding, Findings, shown
from noetl.replay.evidence.lines import Malformed
from noetl.replay.evidence.sheets import Sheet, read_document, read_payloads, read_sheet

__all__ = ["Checked", "check_evidence"]

_ZERO = "0" * 64

A = TypeVar("A", bound=Artefact)


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a check has shown. It is the same wherever the evidence lies."""

    ok: bool
    scope: Scope | None
    status: str | None
    events: int | None
    rows: int | None
    payloads: int | None
    chain: str | None
    keyed: bool | None
    parity: bool | None
    checksum: str | None
    signed_by: str | None
    index_sha256: str | None
    problems: list[Finding]


def check_evidence(directory: Path, *, trusted: str | None = None) -> Checked:
    """Verify all of it again; with a `trusted` public key also that its owner has signed it.

    Raises NotFound if there is no such directory, Unavailable if it cannot be read.
    """
    if not directory.is_dir():
        raise NotFound(f"there is no directory {directory}", hint="name the directory that noetl evidence has written")
    return _Check(directory, trusted).run()


class _Check:
    def __init__(self, directory: Path, trusted: str | None) -> None:
        self._directory = directory
        self._trusted = trusted
        self._findings = Findings()
        self._files = Files(directory, self._findings)
        self._said: dict[str, bool] = {}
        """Of some steps, whether what they are about holds."""

    def run(self) -> Checked:
        index = self._files.index(self._trusted)
        state = self._state()
        live = self._rows(state.document.fold_version if state else None)
        replayed_side = self._check_state(state) if state else None
        live_side = self._check_live(state, live) if live else None
        parity = self._check_parity(state, replayed_side, live_side)
        payloads = self._check_payloads(state)
        manifest = self._check_manifest(live)
        scope = state.document.scope if state else None
        for name, document in (("index", index), ("manifest", manifest)):
            self._same_scope(INDEX if name == "index" else FILES[name], document, scope)
        if index is not None and manifest is not None and index.created_at != manifest.ended_at:
            self._findings.add(INDEX, "created_at", f"is not when the manifest ended, {manifest.ended_at}")
        found: ReplayState | None = state.document if state else None
        return Checked(
            ok=not self._findings.all,
            scope=scope,
            status=found.status if found else None,
            events=found.event_count if found else None,
            rows=sum(state.tally.counts.values()) if state else None,
            payloads=payloads.summary.total if payloads else None,
            chain=found.log.chain if found else None,
            keyed=found.log.keyed if found else None,
            parity=parity.match if parity else None,
            checksum=replayed_side.checksum if replayed_side else None,
            signed_by=index.signed_by if index else None,
            index_sha256=self._files.digest(INDEX)[1],
            problems=self._findings.all,
        )

    # --- The two sides ------------------------------------------------------------------------------------

    def _state(self) -> Sheet | None:
        name = FILES["replay_state"]
        return read_sheet(self._directory / name, ReplayState, self._findings) if name in self._files.there else None

    def _rows(self, version: int | None) -> Sheet | None:
        name = FILES["live_rows"]
        if name not in self._files.there:
            return None
        return read_sheet(self._directory / name, LiveRows, self._findings, fold_version=version)

    def _check_state(self, sheet: Sheet) -> Side:
        name, state = FILES["replay_state"], sheet.document
        side = side_of(sheet.tally, state.upcaster_registry_digest)
        found = msgspec.structs.replace(
            state,
            row_counts=side.counts,
            rows_checksum=side.rows_checksum,
            projection_checksums=side.bundle,
            checksum=side.checksum,
            status=sheet.root.get("status"),
            event_count=sheet.root.get("event_count", 0),
            events_folded=sheet.root.get("event_count", 0),
            last_event_id=sheet.root.get("last_event_id", 0),
            scope=_scope_in(state.scope, sheet.root),
        )
        self._findings.compare(name, state, found)
        if sheet.tally.counts["execution"] != 1:
            self._findings.add(name, "rows.execution", f"has {sheet.tally.counts['execution']} rows, not one")
        if not is_canonical_time(state.last_ingest_time):
            self._findings.add(name, "last_ingest_time", "is not a time in UTC with microseconds")
        if state.log.events < state.event_count:
            self._findings.add(name, "log.events", f"is {state.log.events}, and {state.event_count} were folded")
        if (state.log.chain == "ok") != (not state.log.problems):
            self._findings.add(name, "log.chain", f"is '{state.log.chain}', with {len(state.log.problems)} problems")
        for number, problem in enumerate(state.log.problems):
            self._findings.add(name, f"log.problems[{number}]", problem)
        self._said["replay_state"] = state.log.chain == "ok"
        return side

    def _check_live(self, state: Sheet | None, live: Sheet) -> Side:
        name, document = FILES["live_rows"], live.document
        digest = state.document.upcaster_registry_digest if state else _ZERO
        side = side_of(live.tally, digest)
        found = msgspec.structs.replace(document, row_counts=side.counts, rows_checksum=side.rows_checksum)
        self._findings.compare(name, document, found)
        self._same_scope(name, document, state.document.scope if state else None)
        if not is_canonical_time(document.exported_at):
            self._findings.add(name, "exported_at", "is not a time in UTC with microseconds")
        said = self._read("live_checksums", LiveChecksums)
        if said is not None and state is not None:
            expected = live_checksums_of(state.document.scope, side, digest)
            self._findings.compare(FILES["live_checksums"], said, expected)
        return side

    def _check_parity(self, state: Sheet | None, replayed: Side | None, live: Side | None) -> Parity | None:
        parity = self._read("parity", Parity)
        if parity is None or state is None or replayed is None or live is None:
            return parity
        files = (self._directory / FILES["replay_state"], self._directory / FILES["live_rows"])
        try:
            found = parity_of(state.document.scope, replayed, live, *files)
        except Malformed:
            return parity  # it was named when the file was read
        self._findings.compare(FILES["parity"], parity, found)
        for surface in () if found.match else found.surfaces.__struct_fields__:
            if not getattr(found.surfaces, surface).match:
                self._findings.add(FILES["parity"], f"surfaces.{surface}", "live and replayed rows differ")
        for number, one in enumerate(found.differences):
            what = f"{one.surface} row {one.row}, field '{one.field}': live {one.live}, replayed {one.replayed}"
            self._findings.add(FILES["parity"], f"differences[{number}]", what)
        self._said["parity"] = found.match
        return found

    def _check_payloads(self, state: Sheet | None) -> PayloadResolution | None:
        name = FILES["payload_resolution"]
        if name not in self._files.there:
            return None
        read = read_payloads(self._directory / name, self._findings)
        if read is None:
            return None
        document, tally = read
        totals = tally.totals()
        self._findings.compare(name, document, msgspec.structs.replace(document, summary=totals))
        self._said["payload_resolution"] = totals.all_resolved
        if state is not None:
            self._same_scope(name, document, state.document.scope)
            wanted = (state.root.get("payload_count", 0), state.root.get("payload_digest") or _ZERO)
            if (totals.total, totals.digest) != wanted:
                self._findings.add(
                    name, "rows.payloads", f"are not the {wanted[0]} payloads that the state has counted"
                )  # fmt: skip
        return document

    # --- How it came about --------------------------------------------------------------------------------

    def _check_manifest(self, live: Sheet | None) -> Manifest | None:
        name = FILES["manifest"]
        manifest = self._read("manifest", Manifest)
        if manifest is None:
            return None
        expected = {**FILES, "artifact_index": INDEX}
        if manifest.artifacts != expected:
            self._findings.add(name, "artifacts", f"is {shown(manifest.artifacts)}, not {shown(expected)}")
        if live is not None:
            self._same(name, "config.adapter", manifest.config.adapter, live.document.adapter)
        self._check_steps(name, manifest)
        return manifest

    def _check_steps(self, name: str, manifest: Manifest) -> None:
        names = [step.name for step in manifest.steps]
        if names != list(STEPS):
            self._findings.add(name, "steps", _disorder(names))
        moments = [manifest.started_at]
        for number, step in enumerate(manifest.steps):
            place = f"steps[{number}]"
            moments += [step.started_at, step.ended_at]
            self._check_duration(name, f"{place}.duration_us", step)
            holds = self._said.get(step.name, step.return_code == 0)
            if not holds or step.return_code != 0:
                verdict = "holds" if holds and step.name in self._said else "does not hold"
                self._findings.add(name, f"{place}.return_code", f"is {step.return_code}: '{step.name}' {verdict}")
        moments.append(manifest.ended_at)
        if not all(is_canonical_time(moment) for moment in moments):
            self._findings.add(name, "steps", "have a time that is none")
        elif moments != sorted(moments):
            self._findings.add(name, "steps", "do not follow each other in time")
        self._check_duration(name, "duration_us", manifest)
        worst = max((step.return_code for step in manifest.steps), default=0)
        if manifest.return_code != worst:
            self._findings.add(name, "return_code", f"is {manifest.return_code}, that of its steps is {worst}")

    def _check_duration(self, name: str, field: str, timed: Step | Manifest) -> None:
        if not (is_canonical_time(timed.started_at) and is_canonical_time(timed.ended_at)):
            return
        took = parse_time(timed.ended_at) - parse_time(timed.started_at)
        if timed.duration_us != took:
            self._findings.add(name, field, f"is {timed.duration_us}, from its beginning to its end there are {took}")

    # --- Below --------------------------------------------------------------------------------------------

    def _read(self, role: str, kind: type[A]) -> A | None:
        name = FILES[role]
        return read_document(self._directory / name, kind, self._findings) if name in self._files.there else None

    def _same_scope(self, name: str, document: Any, scope: Scope | None) -> None:
        if document is not None and scope is not None:
            self._same(name, "scope", document.scope, scope)

    def _same(self, name: str, field: str, said: Scope | Adapter, wanted: Scope | Adapter) -> None:
        if said != wanted:
            self._findings.add(name, field, f"is {shown(said)}, elsewhere in this evidence it is {shown(wanted)}")


def _scope_in(scope: Scope, root: dict[str, Any]) -> Scope:
    """The scope as the row of the execution tells it; the position is outside the row."""
    return Scope(
        tenant_id=root.get("tenant_id") or "",
        organization_id=root.get("organization_id") or "",
        project_id=root.get("project_id") or "",
        execution_id=root.get("execution_id") or 0,
        position=scope.position,
    )


def _disorder(names: list[str]) -> str:
    for number, (name, wanted) in enumerate(zip(names, STEPS, strict=False)):
        if name != wanted:
            return f"[{number}] is '{name}', '{wanted}' comes there"
    return f"there are {len(names)}, not {len(STEPS)}: {', '.join(names[len(STEPS) :] or STEPS[len(names) :])}"
