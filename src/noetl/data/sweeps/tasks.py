"""What the tasks of a sweep do, on executors: list objects, hear the log, judge, and look for names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from noetl.data.sweeps.faults import carried
from noetl.data.sweeps.mentions import Mentions
from noetl.data.sweeps.roots import roots_in
from noetl.data.sweeps.shards import Shard
from noetl.data.sweeps.shelf import Shelf, Store, at_once, run_there
from noetl.data.sweeps.spec import JUDGED, LOG, NAMES, OBJECTS, SweepSpec, batch_of
from noetl.errors import IntegrityMismatch, Unavailable
from noetl.payloads.blocking import in_thread
from noetl.payloads.sidecar import is_sidecar, object_of
from noetl.payloads.sweeping.judging import NOTHING_DESCRIBED, is_past_grace, why_dead
from noetl.payloads.sweeping.naming import Named, read_key
from noetl.payloads.sweeping.tracing import Damaged, names_inside
from noetl.ports.objects import ObjectInfo

__all__ = ["hear_archives", "hear_log", "judge_objects", "list_objects", "look_inside"]

_ROWS = 10_000
_PAGE = 1000

Batches = Iterator[pa.RecordBatch]
Row = dict[str, Any]


# --- Objects


def list_objects(argument: bytes, batches: Batches) -> Batches:
    """The objects of each shard."""
    spec = msgspec.msgpack.decode(argument, type=SweepSpec)
    shards = [Shard(row["folder"], row["deep"]) for batch in batches for row in batch.to_pylist()]

    async def listed(shelf: Shelf) -> AsyncIterator[pa.RecordBatch]:
        rows: list[Row] = []
        for shard in shards:
            async for row in _described(_infos(shelf.objects, shard), spec):
                rows.append(row)
                if len(rows) >= _ROWS:
                    yield batch_of(rows, OBJECTS)
                    rows = []
        yield batch_of(rows, OBJECTS)

    return run_there(spec.place, spec.fingerprint, listed)


async def _infos(objects: Store, shard: Shard) -> AsyncIterator[ObjectInfo]:
    if not shard.deep:
        for info in (await objects.level(shard.folder)).objects:
            yield info
        return
    async for info in objects.list(shard.folder):
        yield info


async def _described(infos: AsyncIterator[ObjectInfo], spec: SweepSpec) -> AsyncIterator[Row]:
    """Each object with its sidecar: in order of key nothing of ours stands between the two."""
    waiting: Row | None = None
    async for info in infos:
        if is_sidecar(info.key) and waiting is not None and waiting["key"] == object_of(info.key):
            waiting |= {"sidecar_size": info.size, "sidecar_at": info.modified_at}
            continue
        if waiting is not None:
            yield waiting
        waiting = _row(info, spec)
    if waiting is not None:
        yield waiting


def _row(info: ObjectInfo, spec: SweepSpec) -> Row:
    row: Row = {"key": info.key, "size": info.size, "modified_at": info.modified_at}
    if is_sidecar(info.key):
        return {**row, "kind": "foreign" if read_key(object_of(info.key)) is None else "sidecar"}
    named = read_key(info.key)
    if named is None:
        return {**row, "kind": "mark" if info.key.endswith(spec.marks) else "foreign"}
    return {**row, **named._asdict()}


# --- The log


def hear_log(argument: bytes, batches: Batches) -> Batches:
    """What each span of the log says of objects, every thing once for a span."""
    spec = msgspec.msgpack.decode(argument, type=SweepSpec)
    spans = [(row["after"], row["to"]) for batch in batches for row in batch.to_pylist()]

    async def heard(shelf: Shelf) -> AsyncIterator[pa.RecordBatch]:
        for after, to in spans:
            yield _told(await _heard(shelf, after, to, follow=spec.follow))

    return run_there(spec.place, spec.fingerprint, heard)


def hear_archives(argument: bytes, batches: Batches) -> Batches:
    """What the archive of each root says of objects."""
    spec = msgspec.msgpack.decode(argument, type=SweepSpec)
    roots = [root for batch in batches for _, root in roots_in(batch)]

    async def heard(shelf: Shelf) -> AsyncIterator[pa.RecordBatch]:
        for root in roots:
            told, after = Mentions(), 0
            while page := await shelf.ledger.audit(root=root, after_position=after, limit=_PAGE):
                await in_thread(told.hear, page, follow=spec.follow)
                after = page[-1].position
            yield _told(told)

    return run_there(spec.place, spec.fingerprint, heard)


async def _heard(shelf: Shelf, after: int, to: int, *, follow: bool) -> Mentions:
    told = Mentions()
    while after < to and (page := await shelf.ledger.audit(after_position=after, limit=min(_PAGE, to - after))):
        inside = [found for found in page if found.position <= to]
        await in_thread(told.hear, inside, follow=follow)
        after = page[-1].position
    if await shelf.ledger.position() < to:
        raise Unavailable(
            f"the ledger that an executor of Spark reads ends before position {to}",
            hint="give the executors the ledger's own server, not a copy of it that comes after",
        )
    return told


def _told(told: Mentions) -> pa.RecordBatch:
    rows: list[Row] = [{"identity": identity, "until": until} for identity, until in told.references.items()]
    rows += [
        {"tenant": tenant, "execution": execution, "ended": ended}
        for (tenant, execution), ended in told.executions.items()
    ]
    rows += [{"listing": key} for key in told.listings]
    rows += [{"heard": tenant} for tenant in told.tenants]
    return batch_of([*rows, {"events": told.events}], LOG)


# --- Life and death


def judge_objects(argument: bytes, batches: Batches) -> Batches:
    """Why each object is dead, if it is: `until` and `ended` are what the log says of it."""
    spec = msgspec.msgpack.decode(argument, type=SweepSpec)
    with carried():
        for batch in batches:
            yield batch_of([_judged(row, spec) for row in batch.to_pylist()], JUDGED)


def _judged(row: Row, spec: SweepSpec) -> Row:
    if row["kind"] in ("foreign", "mark"):
        reason = None
    elif row["kind"] == "sidecar":
        reason = NOTHING_DESCRIBED
    else:
        named = Named(row["kind"], row["identity"], row["tenant"], row["execution"])
        reason = why_dead(named, row["until"], row["ended"], spec.now)
    is_young = reason is not None and not is_past_grace(row["modified_at"], spec.grace, spec.now)
    judged = {name: row[name] for name in OBJECTS.names}
    return {**judged, "reason": None if is_young else reason, "is_young": is_young}


# --- Names inside


def look_inside(argument: bytes, batches: Batches) -> Batches:
    """The objects that each object names."""
    spec = msgspec.msgpack.decode(argument, type=SweepSpec)

    async def looked(shelf: Shelf) -> AsyncIterator[pa.RecordBatch]:
        async def names(row: Row) -> set[bytes] | str:
            named = Named(row["kind"], row["identity"], row["tenant"], row["execution"])
            try:
                return await names_inside(shelf.objects, row["key"], named)
            except (Damaged, IntegrityMismatch):
                return str(row["key"])

        for batch in batches:
            found = await at_once(batch.to_pylist(), names)
            every = set[bytes]().union(*(one for one in found if not isinstance(one, str)))
            rows: list[Row] = [{"identity": identity} for identity in every]
            yield batch_of([*rows, *({"damaged": key} for key in found if isinstance(key, str))], NAMES)

    return run_there(spec.place, spec.fingerprint, looked)
