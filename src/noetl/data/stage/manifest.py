"""What was pinned: the files and objects that hold a stage's rows, and how they are cut into slices.

A manifest is stored before the first frame is dispatched, and every frame refers to it. Slices follow from it alone,
so a second keeper, or another machine, cuts the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, overload

import msgspec

from noetl.data.frame.protocol import Slice
from noetl.data.stage.listing import PINNED
from noetl.errors import IntegrityMismatch
from noetl.kernel.event import Json, PayloadRef

__all__ = ["Manifest", "Piece", "Range", "Source", "pieces_of", "read_manifest", "slices_of", "write_manifest"]

_MOST_GROUPS = 1024
_MOST_RANGES = 64


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows in one place: an object of ours, or a file that must not have changed since."""

    form: Literal["stored", "arrow", "parquet"]
    rows: int
    ref: PayloadRef | None = None
    path: str = ""
    size: int = 0
    modified: int = 0
    """When a file was changed last, in nanoseconds."""
    parts: tuple[int, ...] = ()
    """Rows of each record batch or row group; nothing for what is small enough to be read whole."""
    first: int = 0
    """Rows of other sources that come before them in the same place."""
    groups: tuple[int, ...] = ()
    """Rows of each group, where the rows are in the order of their keys."""
    frame_id: int = 0
    """The frame of an earlier stage that has made them; 0 for rows that have come from elsewhere."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that is needed to cut the same slices again."""

    sources: tuple[Source, ...]
    rows_per_slice: int
    by: tuple[str, ...] = ()
    is_reduce: bool = False
    is_exact: bool = False
    """The rows were given as JSON, and are to be the same JSON again."""
    is_scalar: bool = False
    """They were no mappings: each is a value in a column of its own."""
    skipped: tuple[str, ...] = ()
    """What was left out because the author has said so, with the reason."""


class Range(NamedTuple):
    """Some rows of one source."""

    source: int
    first: int
    rows: int


class Piece(msgspec.Struct, frozen=True):
    """A slice in full: where its rows are, and how many belong to each of its groups."""

    ranges: tuple[Range, ...]
    groups: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.ranges)


def pieces_of(manifest: Manifest) -> Iterator[Piece]:
    """The slices of a manifest, in order."""
    if manifest.is_reduce and not manifest.by:
        ranges = tuple(Range(number, 0, source.rows) for number, source in enumerate(manifest.sources) if source.rows)
        if ranges:
            yield Piece(ranges, (sum(one.rows for one in ranges),))
        return
    yield from _by_groups(manifest) if manifest.by else _by_rows(manifest)


def _by_rows(manifest: Manifest) -> Iterator[Piece]:
    """So many rows each, across the borders of sources where these are small."""
    taken: list[Range] = []
    room = manifest.rows_per_slice
    for number, source in enumerate(manifest.sources):
        first = 0
        while first < source.rows:
            rows = min(room, source.rows - first)
            taken.append(Range(number, first, rows))
            first += rows
            room -= rows
            if not room or len(taken) == _MOST_RANGES:
                yield Piece(tuple(taken))
                taken, room = [], manifest.rows_per_slice
    if taken:
        yield Piece(tuple(taken))


def _by_groups(manifest: Manifest) -> Iterator[Piece]:
    """Whole groups together. In a fan-out one that is larger than a slice is cut; a reduce needs it whole."""
    for number, source in enumerate(manifest.sources):
        first, begin, groups = 0, 0, list[int]()
        for rows in source.groups:
            if groups and (first + rows - begin > manifest.rows_per_slice or len(groups) == _MOST_GROUPS):
                yield Piece((Range(number, begin, first - begin),), tuple(groups))
                begin, groups = first, []
            first += rows
            groups.append(rows)
            while not manifest.is_reduce and first - begin > manifest.rows_per_slice:
                yield Piece((Range(number, begin, manifest.rows_per_slice),))
                begin += manifest.rows_per_slice
                groups = [first - begin]
        if first > begin:
            yield Piece((Range(number, begin, first - begin),), tuple(groups))


class _Slices(Sequence[Slice]):
    """The slices of a manifest, each made when it is asked for: there may be very many."""

    def __init__(self, manifest: Manifest, ref: PayloadRef) -> None:
        self._at: Json = msgspec.to_builtins(ref)
        self._firsts, self._lengths, self._counts = array("q"), array("q"), array("q")
        self._parents: dict[int, tuple[int, ...]] = {}
        first = 0
        for number, piece in enumerate(pieces_of(manifest)):
            self._firsts.append(first)
            self._lengths.append(piece.rows)
            self._counts.append(len(piece.groups) if manifest.is_reduce else piece.rows)
            parents = {manifest.sources[one.source].frame_id for one in piece.ranges} - {0}
            if 0 < len(parents) <= _MOST_RANGES:
                self._parents[number] = tuple(sorted(parents))
            first += piece.rows

    def __len__(self) -> int:
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Slices) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(len(self))

    def _key(self) -> tuple[object, ...]:
        return self._at, self._firsts, self._lengths, self._counts, self._parents

    @overload
    def __getitem__(self, number: int) -> Slice: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Slice]: ...

    def __getitem__(self, number: int | slice) -> Slice | Sequence[Slice]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        first, rows = self._firsts[number], self._lengths[number]
        part: Json = {"pinned": self._at, "number": number % len(self), "first": first, "rows": rows}
        parents = self._parents.get(number % len(self), ())
        if len(parents) > 1:
            part["parent_frames"] = list(parents)
        parent = parents[0] if len(parents) == 1 else None
        return Slice(part=part, rows=self._counts[number], parent_frame_id=parent)


def slices_of(manifest: Manifest, ref: PayloadRef) -> Sequence[Slice]:
    """What frames are given: the manifest by its reference, the number of the piece, and for people its rows."""
    return _Slices(manifest, ref)


def write_manifest(manifest: Manifest) -> bytes:
    """The manifest as it is stored."""
    return msgspec.json.encode({"kind": PINNED, **msgspec.to_builtins(manifest)})


def read_manifest(data: bytes) -> Manifest:
    """The manifest that was stored. Raises IntegrityMismatch for what is none."""
    try:
        said = msgspec.json.decode(data, type=dict[str, Any])
        said.pop("kind", None)
        return msgspec.convert(said, Manifest)
    except msgspec.MsgspecError as error:
        raise IntegrityMismatch(f"what a stage has pinned cannot be read: {error}") from None
