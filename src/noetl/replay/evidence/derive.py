"""What follows from the rows of both sides: made when evidence is given, and again when it is checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from noetl.kernel import canonical
from noetl.kernel.chain import MODULUS
from noetl.kernel.fold import EXECUTION_SURFACES, ROOT_ID, compare, state_checksum
from noetl.kernel.fold.state import SURFACES_BY_CATEGORY
from noetl.replay.evidence.artefacts import (
    PAYLOADS,
    SURFACES,
    Bundle,
    Counts,
    DifferingField,
    LiveChecksums,
    Parity,
    PayloadLine,
    PayloadTotals,
    Scope,
    SurfaceParities,
    SurfaceParity,
)
from noetl.replay.evidence.lines import Row, RowsReader, Tally

__all__ = ["PayloadTally", "Side", "live_checksums_of", "parity_of", "row_id_of", "side_of"]

_MOST_DIFFERENCES = 100
_MOST_TEXT = 200


class Side(NamedTuple):
    """What the rows of one side come to."""

    counts: Counts
    rows_checksum: str
    bundle: Bundle
    checksum: str


def side_of(tally: Tally, registry_digest: str) -> Side:
    """The checksums of rows that have passed by, as a state under these upcasters has them."""
    bundle = tally.bundle()
    ordered = {name: bundle[name] for name in EXECUTION_SURFACES}
    return Side(
        counts=Counts(**tally.counts),
        rows_checksum=tally.rows_checksum(),
        bundle=Bundle(**ordered),
        checksum=state_checksum(ordered, registry_digest),
    )


def row_id_of(row: Row) -> str | None:
    """The id that a row is stored under, as the row itself tells it; None if it does not."""
    shape = SURFACES_BY_CATEGORY["execution"][row.surface]
    if shape.key_field is None:
        return ROOT_ID
    value = row.value.get(shape.key_field)
    return str(value) if isinstance(value, str if not shape.numeric else int) else None


def live_checksums_of(scope: Scope, live: Side, registry_digest: str) -> LiveChecksums:
    """The live checksums, from the live rows."""
    return LiveChecksums(
        scope=scope,
        upcaster_registry_digest=registry_digest,
        row_counts=live.counts,
        rows_checksum=live.rows_checksum,
        projection_checksums=live.bundle,
        checksum=live.checksum,
    )


def parity_of(scope: Scope, replayed: Side, live: Side, replayed_file: Path, live_file: Path) -> Parity:
    """The parity report. Rows are compared one by one only where a checksum differs. Raises Malformed."""
    surfaces = {
        name: SurfaceParity(
            match=getattr(live.bundle, name) == getattr(replayed.bundle, name),
            live=getattr(live.bundle, name),
            replayed=getattr(replayed.bundle, name),
            live_rows=getattr(live.counts, name),
            replayed_rows=getattr(replayed.counts, name),
        )
        for name in EXECUTION_SURFACES
    }
    match = live.checksum == replayed.checksum
    count, first = 0, list[DifferingField]()
    for difference in () if match else _differences(replayed_file, live_file):
        count += 1
        if count <= _MOST_DIFFERENCES:
            first.append(difference)
    return Parity(
        scope=scope,
        match=match,
        live_checksum=live.checksum,
        replayed_checksum=replayed.checksum,
        surfaces=SurfaceParities(**surfaces),
        differing_fields=count,
        differences=first,
    )


def _differences(replayed_file: Path, live_file: Path) -> Iterator[DifferingField]:
    """Both files side by side: they are in the same order, so one row of each is enough."""
    live_rows, replayed_rows = (RowsReader(file, SURFACES).rows() for file in (live_file, replayed_file))
    live, replayed = next(live_rows, None), next(replayed_rows, None)
    while live is not None or replayed is not None:
        first = min(_place(row) for row in (live, replayed) if row is not None)
        one = live if live is not None and _place(live) == first else None
        other = replayed if replayed is not None and _place(replayed) == first else None
        if one is None or other is None or one.line != other.line:
            yield from _fields(first[0], first[1], one, other)
        live = next(live_rows, None) if one is not None else live
        replayed = next(replayed_rows, None) if other is not None else replayed


def _fields(surface: str, row_id: str, live: Row | None, replayed: Row | None) -> Iterator[DifferingField]:
    if live is None or replayed is None:
        whole = [None if row is None else _text(row.value) for row in (live, replayed)]
        yield DifferingField(surface=surface, row=row_id, field="*", live=whole[0], replayed=whole[1])
        return
    for difference in compare(surface, {row_id: live.value}, {row_id: replayed.value}):
        name = difference.field
        yield DifferingField(
            surface=surface,
            row=row_id,
            field=name,
            live=_text(live.value[name]) if name in live.value else None,
            replayed=_text(replayed.value[name]) if name in replayed.value else None,
        )


def _place(row: Row) -> tuple[str, str]:
    return row.surface, row_id_of(row) or ""


def _text(value: object) -> str:
    text = canonical.encode(value).decode()
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "…"


class PayloadTally:
    """What payloads come to, while they pass by."""

    def __init__(self) -> None:
        self._tally = Tally([PAYLOADS])
        self._names: set[tuple[str, str]] = set()
        self._unresolved = 0
        self._digest = 0

    def add(self, line: PayloadLine) -> None:
        """One more event that has a payload."""
        self._tally.add(PAYLOADS, canonical.encode(msgspec.to_builtins(line)))
        self._names.add((line.uri, line.sha256))
        self._unresolved += line.error is not None
        self._digest = (self._digest + int(line.sha256, 16)) % MODULUS

    def totals(self) -> PayloadTotals:
        """All of them."""
        total = self._tally.counts[PAYLOADS]
        return PayloadTotals(
            total=total,
            unique=len(self._names),
            resolved=total - self._unresolved,
            unresolved=self._unresolved,
            all_resolved=self._unresolved == 0,
            digest=f"{self._digest:064x}",
            checksum=self._tally.rows_checksum(),
        )
