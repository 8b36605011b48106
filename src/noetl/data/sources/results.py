"""Rows that are at hand, and what was kept: results of steps, outputs of stages, addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.frame.output import table_in, without_lineage
from noetl.data.sources.files import open_files
from noetl.data.sources.reading import Frame, Reading
from noetl.data.sources.staging import parquet_frame, stage, struct_of
from noetl.data.stage.files import Opened
from noetl.data.stage.pinning import payload_ref_of
from noetl.data.stage.slices import SCALARS
from noetl.errors import InvalidInput
from noetl.kernel.event import PayloadRef
from noetl.kernel.lazy import LazyMapping, LazySequence, plain
from noetl.kernel.names import ResourceName, parse
from noetl.payloads.blocking import in_thread
from noetl.payloads.formats import MEDIA_TYPES
from noetl.payloads.tables import Rows, TableValue

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["frame_of_tables", "open_ref", "open_rows"]

_MOST_BYTES = 1 << 30


async def open_rows(said: Any, reading: Reading) -> Frame:
    """Rows that the task was given: a table, or a list of mappings or values."""
    if isinstance(said, TableValue) and not said.native:
        said = said.plain()
    if isinstance(said, TableValue | Rows):
        return await frame_of_tables([said.arrow], reading)
    if isinstance(said, LazySequence | LazyMapping):
        said = plain(said)
    if isinstance(said, Mapping) and "rows" in said:
        said = said["rows"]
    if not isinstance(said, list | tuple):
        raise InvalidInput("it is neither a table nor a list of rows", hint="give rows: [{id: 1}, {id: 2}]")
    rows = [row if isinstance(row, Mapping) else {SCALARS: row} for row in said]
    return await frame_of_tables([await in_thread(table_in, rows)], reading)


async def frame_of_tables(tables: Sequence[pa.Table], reading: Reading) -> Frame:
    """Tables that are in memory already."""
    folder = reading.place("rows")
    groups: dict[Any, list[Any]] = {}
    for number, table in enumerate(tables):
        path = folder / f"{number:06d}.parquet"
        opened = Opened(table.schema, iter(table.to_batches()))
        if table.num_columns:
            await in_thread(stage, opened, path)
            groups.setdefault(table.schema.remove_metadata(), []).append(path)
    return _frame(groups)


async def open_ref(said: Any, reading: Reading) -> Frame:
    """What a reference or an address stands for."""
    if isinstance(said, str):
        return await _of_address(said, reading)
    if not isinstance(said, Mapping):
        raise InvalidInput("ref is not a reference", hint="give the ref of a result: {{ load.ref }}")
    if said.get("form") == "files":
        return await open_files(str(said["path"]), said.get("format"), {}, reading)
    ref = payload_ref_of(dict(said))
    if said.get("form") == "frames":
        listed = await reading.means.results.value(ref)
        outputs = [frame["output"] for frame in listed["frames"] if frame.get("output")]
        return await _of_refs([msgspec.convert(output, PayloadRef) for output in outputs], reading)
    if ref.media_type == MEDIA_TYPES["feather"]:
        value = await reading.means.results.value(ref)
        if not (isinstance(value, TableValue) and value.native):
            return await open_rows(value, reading)
        return await _of_refs([ref], reading)
    return await open_rows(await reading.means.results.value(ref), reading)


async def _of_address(uri: str, reading: Reading) -> Frame:
    name = parse(uri)
    if isinstance(name, ResourceName):
        return await open_files(str(reading.means.dataset(uri).path), None, {}, reading)
    value = await reading.resolver.read(uri, reading.caller(), limit=_MOST_BYTES)
    if isinstance(value, bytes):
        from noetl.payloads import formats

        return await frame_of_tables([await in_thread(formats.table_in, value)], reading)
    if isinstance(value, Mapping) and isinstance(value.get("ref"), Mapping):
        return await open_ref(value["ref"], reading)
    return await open_rows(value, reading)


async def _of_refs(refs: Sequence[PayloadRef], reading: Reading) -> Frame:
    """Stored tables, each read batch by batch."""
    folder = reading.place("stored")
    groups: dict[Any, list[Any]] = {}
    for number, ref in enumerate(refs):
        batches = reading.means.tiers.batches(ref)
        first = await anext(batches, None)
        if first is None:
            continue
        path = folder / f"{number:06d}.parquet"
        schema = without_lineage(_table(first)).schema
        spool = _Spool(batches)
        try:
            await in_thread(stage, Opened(schema, _own(first, spool)), path)
        finally:
            await spool.close()
        groups.setdefault(schema.remove_metadata(), []).append(path)
    return _frame(groups)


class _Spool:
    """Batches that come in the event loop, for a thread that wants them one after the other."""

    def __init__(self, batches: AsyncIterator[Any]) -> None:
        import asyncio

        self._batches = batches
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[Any]:
        import asyncio

        while True:
            asked = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
            batch = asked.result()
            if batch is None:
                return
            yield batch

    async def _next(self) -> Any:
        return await anext(self._batches, None)

    async def close(self) -> None:
        end = getattr(self._batches, "aclose", None)
        if end is not None:
            await end()


def _table(batch: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _own(first: Any, rest: Iterator[Any] | _Spool) -> Iterator[Any]:
    yield from without_lineage(_table(first)).to_batches()
    for batch in rest:
        yield from without_lineage(_table(batch)).to_batches()


def _frame(groups: dict[Any, list[Any]]) -> Frame:
    def frame(session: SparkSession) -> Any:
        if not groups:
            from pyspark.sql.types import StructType

            return session.createDataFrame([], StructType([]))
        if len(groups) == 1:
            ((schema, paths),) = groups.items()
            return session.read.schema(struct_of(schema)).parquet(*map(str, paths))
        return parquet_frame(session, groups.values())

    return frame
