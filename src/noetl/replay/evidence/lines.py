"""Documents with many rows: valid JSON, and laid out in lines so that nobody needs to hold them.

    {
    "schema":"noetl.evidence.live_rows/1",
    "rows":{
    "commands":[
    {"command_id":1,...},
    {"command_id":2,...}
    ],
    "stages":[
    ]
    },
    "row_counts":{...}
    }

Every field and every row is canonical JSON on a line of its own. Whoever likes may read it as one document instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from noetl.errors import NoetlError
from noetl.kernel import canonical
from noetl.kernel.fold import RowSum

__all__ = ["Malformed", "Row", "RowsReader", "RowsWriter", "Tally"]

_ROWS = b'"rows":{'
_MOST_BYTES = 256 << 20
"""A longer line is not read: no row is so long."""


class Malformed(Exception):
    """Something that does not stand in such a document, and where it is."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(what)
        self.field = field
        self.what = what


class Row(NamedTuple):
    """A row of a surface, as it stands there and as what it means."""

    surface: str
    line: bytes
    value: dict[str, Any]


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _Hash:
    """A file of which only the digest is wanted."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.digest.update(data)


class Tally:
    """What rows come to, while they pass by: their number, the checksum of each surface, and one over all."""

    def __init__(self, surfaces: Sequence[str]) -> None:
        self.counts = dict.fromkeys(surfaces, 0)
        self._surfaces = list(surfaces)
        self._sums = {name: RowSum() for name in surfaces}
        self._digest = hashlib.sha256(b"{")
        self._open: int | None = None

    def add(self, surface: str, row: bytes) -> None:
        """Take in one more row. Surfaces come in their order."""
        self._enter(self._surfaces.index(surface))
        self._digest.update(b"," + row if self.counts[surface] else row)
        self.counts[surface] += 1
        self._sums[surface].add(row)

    def bundle(self) -> dict[str, str]:
        """The checksum of each surface."""
        return {name: total.checksum(name) for name, total in self._sums.items()}

    def rows_checksum(self) -> str:
        """sha256 of the canonical JSON of all rows by surface. Nothing may be added afterwards."""
        self._enter(len(self._surfaces))
        return self._digest.hexdigest()

    def _enter(self, index: int) -> None:
        at = -1 if self._open is None else self._open
        for number in range(at + 1, index + 1):
            if number > 0:
                self._digest.update(b"]")
            if number < len(self._surfaces):
                name = canonical.encode(self._surfaces[number])
                self._digest.update((b"," if number else b"") + name + b":[")
            else:
                self._digest.update(b"}")
        self._open = max(at, index)


class RowsWriter:
    """Writes such a document: what stands before the rows, the rows of each surface in order, and what follows."""

    def __init__(self, sink: _Sink, surfaces: Sequence[str], before: Mapping[str, Any]) -> None:
        self.tally = Tally(surfaces)
        self._surfaces = list(surfaces)
        self._sink = sink
        self._entered = 0
        sink.write(b"{\n")
        for name, value in before.items():
            sink.write(_field(name, value) + b",\n")
        sink.write(_ROWS + b"\n")

    def add(self, surface: str, rows: Sequence[bytes]) -> None:
        """Add rows of a surface; of those passed over there are none."""
        self._enter(self._surfaces.index(surface) + 1)
        for row in rows:
            self._sink.write((b",\n" if self.tally.counts[surface] else b"\n") + row)
            self.tally.add(surface, row)

    def finish(self, after: Mapping[str, Any]) -> None:
        """Write what follows the rows."""
        self._enter(len(self._surfaces))
        self._sink.write(b"\n]\n}")
        for name, value in after.items():
            self._sink.write(b",\n" + _field(name, value))
        self._sink.write(b"\n}\n")

    def _enter(self, number: int) -> None:
        while self._entered < number:
            if self._entered:
                self._sink.write(b"\n],\n")
            self._sink.write(canonical.encode(self._surfaces[self._entered]) + b":[")
            self._entered += 1


class RowsReader:
    """Reads such a document once: first its `rows`, then `fields` and `tally` are complete.

    It takes the lines for what they look like, writes them again as they should be, and compares the digests: so no
    other spelling of the same document passes.
    """

    def __init__(self, path: Path, surfaces: Sequence[str]) -> None:
        self.fields: dict[str, Any] = {}
        self.tally = Tally(surfaces)
        self._path = path
        self._surfaces = list(surfaces)
        self._seen: set[str] = set()

    def rows(self) -> Iterator[Row]:
        """Every row in order. Raises Malformed at the first thing that does not belong there."""
        found, again = hashlib.sha256(), _Hash()
        writer: RowsWriter | None = None
        after: dict[str, Any] = {}
        surface: str | None = None
        ended = False
        with self._path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_MOST_BYTES), b""), 1):
                found.update(line)
                text = line.rstrip(b"\n").removesuffix(b",")
                if writer is None:
                    writer = self._begin(number, text, again)
                elif ended:
                    after |= _fields_of(number, text)
                elif text.endswith(b":["):
                    surface = self._surface(number, text, surface)
                elif text == b"}":
                    ended = True
                elif text != b"]":
                    row = _row(number, surface, text)
                    writer.add(row.surface, [row.line])
                    yield row
        if writer is None:
            raise Malformed("rows", "is missing")
        writer.finish(after)
        self.fields |= after
        self.tally = writer.tally
        for name in self._surfaces:
            if name not in self._seen:
                raise Malformed(f"rows.{name}", "is missing")
        if found.digest() != again.digest.digest():
            raise Malformed("(layout)", "is not written as evidence is: a line has another spelling or another place")

    def _begin(self, number: int, text: bytes, again: _Hash) -> RowsWriter | None:
        if text == _ROWS:
            return RowsWriter(again, self._surfaces, self.fields)
        if text != b"{":
            self.fields |= _fields_of(number, text)
        return None

    def _surface(self, number: int, text: bytes, before: str | None) -> str:
        try:
            name = canonical.decode(text.removesuffix(b":["))
        except NoetlError:
            raise Malformed(f"line {number}", "is not the beginning of a surface") from None
        if name not in self._surfaces:
            raise Malformed(f"rows.{name}", "is not a surface that evidence has")
        if before is not None and self._surfaces.index(name) <= self._surfaces.index(before):
            raise Malformed(f"rows.{name}", f"stands after '{before}'")
        self._seen.add(name)
        return str(name)


def _field(name: str, value: Any) -> bytes:
    return canonical.encode(name) + b":" + canonical.encode(value)


def _fields_of(number: int, text: bytes) -> dict[str, Any]:
    if text == b"}":
        return {}
    try:
        found = canonical.decode(b"{" + text + b"}")
    except NoetlError:
        raise Malformed(f"line {number}", "is neither a field nor a row") from None
    return dict(found)


def _row(number: int, surface: str | None, text: bytes) -> Row:
    if surface is None:
        raise Malformed(f"line {number}", "is a row of no surface")
    try:
        value = canonical.decode(text)
        if isinstance(value, dict) and canonical.encode(value) == text:
            return Row(surface, text, value)
    except NoetlError:
        pass
    raise Malformed(f"rows.{surface}, line {number}", "is not an object in canonical form")
