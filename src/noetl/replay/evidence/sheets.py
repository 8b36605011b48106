"""Reading the documents of evidence, strictly: small ones whole, those with rows line by line."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from noetl.kernel import canonical
from noetl.kernel.fold import FOLD_VERSION
from noetl.kernel.fold.state import SURFACES_BY_CATEGORY, decoder_of
from noetl.replay.evidence.artefacts import PAYLOADS, SURFACES, Artefact, PayloadLine, PayloadResolution
from noetl.replay.evidence.derive import PayloadTally, row_id_of
from noetl.replay.evidence.findings import Findings, differing
from noetl.replay.evidence.lines import Malformed, Row, RowsReader, Tally

__all__ = ["Sheet", "pretty", "read_document", "read_payloads", "read_sheet"]

_MOST_BYTES = 64 << 20
_MOST_ROWS_NAMED = 20
"""Of the rows of a file with which something is wrong, so many are named."""

A = TypeVar("A", bound=Artefact)


@functools.cache
def _decoder(kind: type[A]) -> msgspec.json.Decoder[A]:
    return msgspec.json.Decoder(kind)


class Sheet(NamedTuple):
    """A document with rows: what stands around them, what they come to, and the row of the execution itself."""

    document: Any
    tally: Tally
    root: dict[str, Any]


def pretty(document: Artefact) -> bytes:
    """The one way in which a small document is written."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def read_document(file: Path, kind: type[A], findings: Findings) -> A | None:
    """A small document, or None and why it is none."""
    try:
        with file.open("rb") as source:
            data = source.read(_MOST_BYTES + 1)
    except OSError as error:
        findings.add(file.name, "(file)", f"cannot be read: {error.strerror}")
        return None
    if len(data) > _MOST_BYTES:
        findings.add(file.name, "(file)", f"is longer than {_MOST_BYTES} bytes")
        return None
    try:
        document: A = _decoder(kind).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        findings.add_shape(file.name, error)
        return None
    if pretty(document) != data:
        findings.add(file.name, "(layout)", "is not written as evidence is: it has another spelling or another order")
    return document


def read_sheet(file: Path, kind: type[A], findings: Findings, *, fold_version: int | None = None) -> Sheet | None:
    """A document with the rows of a state.

    Rows of this release's fold must be such rows, those of another one are objects that have an id. Which fold it was
    the document says itself, unless it is told.
    """
    reader = RowsReader(file, SURFACES)
    look = _Rows(file.name, findings)
    try:
        for row in reader.rows():
            look.take(row, typed=reader.fields.get("fold_version", fold_version) == FOLD_VERSION)
    except Malformed as error:
        findings.add(file.name, error.field, error.what)
        return None
    except OSError as error:
        findings.add(file.name, "(file)", f"cannot be read: {error.strerror}")
        return None
    document = _around(file.name, reader.fields, kind, {name: [] for name in SURFACES}, findings)
    return None if document is None else Sheet(document, reader.tally, look.root)


def read_payloads(file: Path, findings: Findings) -> tuple[PayloadResolution, PayloadTally] | None:
    """The payload report, and what its lines come to."""
    reader, tally = RowsReader(file, [PAYLOADS]), PayloadTally()
    seen: set[int] = set()
    named = 0
    try:
        for number, row in enumerate(reader.rows()):
            place = f"rows.{PAYLOADS}[{number}]"
            try:
                line = _decoder(PayloadLine).decode(row.line)
            except msgspec.ValidationError as error:
                findings.add_shape(file.name, error, place)
                return None
            tally.add(line)
            if line.event_id in seen:
                findings.add(file.name, f"{place}.event_id", f"event {line.event_id} stands there twice")
            seen.add(line.event_id)
            if line.error is not None and named < _MOST_ROWS_NAMED:
                named += 1
                findings.add(file.name, f"{place}.error", f"{line.uri}: {line.error}")
    except Malformed as error:
        findings.add(file.name, error.field, error.what)
        return None
    except OSError as error:
        findings.add(file.name, "(file)", f"cannot be read: {error.strerror}")
        return None
    document = _around(file.name, reader.fields, PayloadResolution, {PAYLOADS: []}, findings)
    return None if document is None else (document, tally)


def _around(name: str, fields: dict[str, Any], kind: type[A], rows: dict[str, Any], findings: Findings) -> A | None:
    try:
        document: A = _decoder(kind).decode(canonical.encode({**fields, "rows": rows}))
    except msgspec.ValidationError as error:
        findings.add_shape(name, error)
        return None
    plain = {field: value for field, value in msgspec.to_builtins(document).items() if field != "rows"}
    for field, said, _ in differing("", fields, plain):
        findings.add(name, field, "is missing" if said is None else "is not as it should be")
    if fields.keys() == plain.keys() and list(fields) != list(plain):
        findings.add(name, "(layout)", "its fields stand in another order")
    return document


class _Rows:
    """Looks at every row: of its shape, with an id, after the one before it."""

    def __init__(self, name: str, findings: Findings) -> None:
        self.root: dict[str, Any] = {}
        self._name = name
        self._findings = findings
        self._last: tuple[str, str] | None = None
        self._named = 0

    def take(self, row: Row, *, typed: bool) -> None:
        """Look at one row."""
        row_id = row_id_of(row)
        place = f"rows.{row.surface}, row {row_id or '?'}"
        if row_id is None:
            self._say(place, "has no id")
        elif self._last is not None and (row.surface, row_id) <= self._last:
            self._say(place, "does not come after the row before it")
        self._last = (row.surface, row_id or "")
        if row.surface == "execution":
            self.root = row.value
        if typed:
            self._look_inside(place, row)

    def _look_inside(self, place: str, row: Row) -> None:
        try:
            known = decoder_of(SURFACES_BY_CATEGORY["execution"][row.surface].row)(row.line)
        except msgspec.MsgspecError as error:
            self._say(place, f"is not such a row: {error}")
            return
        if known.encoded() != row.line:
            extra = sorted(row.value.keys() - canonical.decode(known.encoded()).keys())
            self._say(place, f"has fields that such a row has not, or not so: {', '.join(extra) or 'other values'}")

    def _say(self, place: str, what: str) -> None:
        self._named += 1
        if self._named <= _MOST_ROWS_NAMED:
            self._findings.add(self._name, place, what)
