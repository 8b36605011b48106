"""Reading slices: the rows of a pinned input, the same on every attempt.

What is read is checked to be what was pinned: objects by their digest, files by size and time of change. Decoded
parts are kept for a while, because the next slice often begins where this one ends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.frame.given import Given, Group
from noetl.data.frame.output import without_lineage
from noetl.data.frame.protocol import Frame
from noetl.data.stage.manifest import Manifest, Piece, Range, Source, pieces_of, read_manifest
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel.event import PayloadRef
from noetl.payloads.blocking import in_thread
from noetl.payloads.tables import Rows
from noetl.payloads.tiers import Tiers

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SCALARS", "SliceReader", "joined"]

SCALARS = "value"
"""The column of a list whose items are no mappings."""
_MOST_KEPT = 256 << 20
_MOST_OPEN = 16
_MOST_MANIFESTS = 4


class SliceReader:
    """Reads slices of stages. One serves all slots of a process."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._manifests: OrderedDict[str, tuple[Manifest, tuple[Piece, ...]]] = OrderedDict()
        self._open: OrderedDict[str, _Opened] = OrderedDict()
        self._kept: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._kept_bytes = 0

    async def read(self, frame: Frame) -> Given:
        """What a frame runs over. Raises NotFound, IntegrityMismatch, InvalidInput."""
        assert frame.slice is not None
        manifest, pieces = await self._manifest(msgspec.convert(frame.slice["pinned"], PayloadRef))
        piece = pieces[frame.slice["number"]]
        table = await self.piece(manifest, piece)
        if manifest.is_reduce:
            groups = _groups(table, piece, manifest.by)
            return Given(table, groups=groups[frame.claim_row : frame.claim_row + frame.row_count])
        table = table.slice(frame.claim_row, frame.row_count)
        return Given(table, is_claim=manifest.is_exact, column=SCALARS if manifest.is_scalar else None)

    async def piece(self, manifest: Manifest, piece: Piece) -> pa.Table:
        """All rows of a slice."""
        return joined([await self._range(manifest.sources[one.source], one) for one in piece.ranges])

    async def whole(self, source: Source) -> pa.Table:
        """All rows of a source that is small."""
        return await self._range(source, Range(0, 0, source.rows))

    async def schema(self, source: Source) -> pa.Schema:
        """The columns of a source, without the lineage of an earlier stage."""
        if not source.parts:
            assert source.ref is not None
            return without_lineage(await self._tiers.table(source.ref)).schema
        return without_lineage((await self.part(source, 0)).slice(0, 0)).schema

    async def _manifest(self, ref: PayloadRef) -> tuple[Manifest, tuple[Piece, ...]]:
        if ref.sha256 not in self._manifests:
            manifest = read_manifest(await self._tiers.fetch(ref))
            self._manifests[ref.sha256] = (manifest, tuple(pieces_of(manifest)))
            while len(self._manifests) > _MOST_MANIFESTS:
                self._manifests.popitem(last=False)
        return self._manifests[ref.sha256]

    async def _range(self, source: Source, wanted: Range) -> pa.Table:
        if not source.parts:
            assert source.ref is not None
            return (await self._tiers.table(source.ref)).slice(source.first + wanted.first, wanted.rows)
        found, begin = [], 0
        for number, rows in enumerate(source.parts):
            first, last = max(wanted.first, begin), min(wanted.first + wanted.rows, begin + rows)
            if first < last:
                found.append((await self.part(source, number)).slice(first - begin, last - first))
            begin += rows
        return joined(found)

    async def part(self, source: Source, number: int) -> pa.Table:
        """A record batch or a row group, decoded."""
        path = source.path if source.ref is None else source.ref.uri
        key = (path, number)
        if key not in self._kept:
            opened = self._opened(path)
            async with opened.turn:
                if key not in self._kept:  # else another slot has waited for it before us
                    if opened.read is None:
                        opened.read = await self._reader(source)
                    self._keep(key, await in_thread(opened.read, number))
        self._kept.move_to_end(key)
        kept: pa.Table = self._kept[key]
        return kept

    def _keep(self, key: tuple[str, int], table: pa.Table) -> None:
        if key not in self._kept:
            self._kept[key] = table
            self._kept_bytes += table.nbytes
        while self._kept_bytes > _MOST_KEPT and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes

    def _opened(self, path: str) -> _Opened:
        if path not in self._open:
            self._open[path] = _Opened()
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        return self._open[path]

    async def _reader(self, source: Source) -> Callable[[int], pa.Table]:
        if source.ref is not None:
            return _batches(await self._tiers.mapped(source.ref))
        return await in_thread(_file, source)


class _Opened:
    """A source and who reads it, in turn: a reader of Arrow that two threads use at once brings the process down."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.read: Callable[[int], pa.Table] | None = None


def joined(tables: list[pa.Table]) -> pa.Table:
    """Tables one after the other; a column that one of them lacks is null there. Raises InvalidInput."""
    import pyarrow as pa

    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise InvalidInput(
            f"the parts of this input do not fit together: {str(error).splitlines()[0]}",
            hint="make the columns the same, or say on_drift: skip",
        ) from None


def _file(source: Source) -> Callable[[int], pa.Table]:
    """A file of the user's, if it is still the one that was pinned."""
    path = Path(source.path)
    try:
        found = path.stat()
    except FileNotFoundError:
        raise NotFound(f"{path} is gone since the stage began", hint="put it back, or run the step again") from None
    if (found.st_size, found.st_mtime_ns) != (source.size, source.modified):
        raise IntegrityMismatch(
            f"{path} was changed since the stage began", hint="leave inputs alone until it ends, or run the step again"
        )
    if source.form == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetFile(path, memory_map=True).read_row_group
    import pyarrow as pa

    return _batches(pa.memory_map(str(path)).read_buffer())


def _batches(data: Any) -> Callable[[int], pa.Table]:
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.py_buffer(data))
    return lambda number: pa.Table.from_batches([reader.get_batch(number)])


def _groups(table: pa.Table, piece: Piece, by: tuple[str, ...]) -> list[Group]:
    clean = without_lineage(table)
    found, first = [], 0
    for rows in piece.groups:
        own = clean.slice(first, rows)
        key = Rows(own.select(list(by)).slice(0, 1)).plain()[0] if by else {}
        found.append(Group(key, own))
        first += rows
    return found
