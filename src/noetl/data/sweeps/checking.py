"""What the tasks of a verification do, on executors: say which objects the log needs, read them, and tell which are
not what the log says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from noetl.data.stage.listing import listed_in, stored_at
from noetl.data.sweeps.roots import roots_in
from noetl.data.sweeps.shelf import Shelf, at_once, run_there
from noetl.data.sweeps.spec import CHECKED, NEEDS, SweepSpec, batch_of
from noetl.errors import Corruption, NotFound
from noetl.kernel.event import PayloadRef, Recorded
from noetl.payloads.sweeping.soundness import condition_of
from noetl.ports.objects import ObjectStore

__all__ = ["check_objects", "need_archived", "need_objects"]

_PAGE = 1000

Batches = Iterator[pa.RecordBatch]
Row = dict[str, Any]


def need_objects(argument: bytes, batches: Batches) -> Batches:
    """The objects that each span of the log needs. `turn` says in which order the objects of an event come."""
    spec = msgspec.msgpack.decode(argument, type=SweepSpec)
    spans = [(row["after"], row["to"]) for batch in batches for row in batch.to_pylist()]

    async def needed(shelf: Shelf) -> AsyncIterator[pa.RecordBatch]:
        for first, last in spans:
            position = first
            while position < last and (page := await _page(shelf, position, last)):
                yield batch_of(_needs(shelf, page), NEEDS)
                position = page[-1].position

    return run_there(spec.place, spec.fingerprint, needed)


def need_archived(argument: bytes, batches: Batches) -> Batches:
    """The objects that each archived root needs. They come after all that the ledger has."""
    spec = msgspec.msgpack.decode(argument, type=SweepSpec)
    roots = [one for batch in batches for one in roots_in(batch)]

    async def needed(shelf: Shelf) -> AsyncIterator[pa.RecordBatch]:
        for rank, root in roots:
            after = 0
            while page := await shelf.ledger.read_root(root, after_position=after, limit=_PAGE):
                yield batch_of(_needs(shelf, page, rank), NEEDS)
                after = page[-1].position

    return run_there(spec.place, spec.fingerprint, needed)


def _needs(shelf: Shelf, page: Sequence[Recorded], rank: int = 0) -> list[Row]:
    return [
        _need(need.ref, need.key, (rank, item.position, turn), is_listing=need.is_listing)
        for item in page
        for turn, need in enumerate(shelf.needs(item.event))
    ]


async def _page(shelf: Shelf, after: int, last: int) -> Sequence[Recorded]:
    return await shelf.ledger.read_all(after_position=after, to_position=last, limit=_PAGE)


def _need(ref: PayloadRef, key: str, place: tuple[int, int, int], *, is_listing: bool) -> Row:
    rank, position, turn = place
    listing = msgspec.json.encode(ref).decode() if is_listing else None
    return {
        "key": key, "rank": rank, "position": position, "turn": turn, "sha256": ref.sha256, "bytes": ref.bytes,
        "listing": listing,
    }  # fmt: skip


def check_objects(argument: bytes, batches: Batches) -> Batches:
    """Read each object. What is not sound has a condition; what a list names comes as a need of its own."""
    spec = msgspec.msgpack.decode(argument, type=SweepSpec)

    async def checked(shelf: Shelf) -> AsyncIterator[pa.RecordBatch]:
        async def rows_of(row: Row) -> list[Row]:
            condition = await condition_of(shelf.objects, row["key"], sha256=row["sha256"], size=row["bytes"])
            if condition is not None:
                return [{**row, "condition": condition, "checked": 1}]
            rows = [{"checked": 1, "sound_bytes": row["bytes"]}]
            return rows if row["listing"] is None else [*rows, *await _inside(shelf.objects, row)]

        for batch in batches:
            found = await at_once(batch.to_pylist(), rows_of)
            yield batch_of([row for rows in found for row in rows], CHECKED)

    return run_there(spec.place, spec.fingerprint, checked)


async def _inside(objects: ObjectStore, row: Row) -> list[Row]:
    listing = msgspec.json.decode(row["listing"], type=PayloadRef)
    try:
        data = await objects.get(row["key"])
    except (NotFound, Corruption):
        return []
    needs = [(stored_at(ref), ref) for ref in listed_in(data, listing) if ref.key is None]
    place = (row["rank"], row["position"], row["turn"])
    return [_need(ref, key, place, is_listing=False) for key, ref in needs if key is not None]
