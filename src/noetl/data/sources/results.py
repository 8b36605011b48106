"""Rows that are at hand, and what was kept: results of steps, outputs of stages, addresses."""

from __future__ import annotations

import mmap
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noetl.data.frame.output import without_lineage
from noetl.data.sources.files import open_files
from noetl.data.sources.reading import Frame, Reading
from noetl.data.sources.spooling import Spool
from noetl.data.sources.staging import frame_of, stage
from noetl.data.stage.files import Opened
from noetl.data.stage.inputs import payload_ref_of
from noetl.data.stage.listing import FRAMES, outputs_in
from noetl.errors import InvalidInput
from noetl.kernel.event import PayloadRef
from noetl.kernel.lazy import LazyMapping, LazySequence, plain
from noetl.kernel.names import PayloadName, ResourceName, parse
from noetl.payloads import formats
from noetl.payloads.blocking import in_thread
from noetl.payloads.tables import Rows, TableValue, holds_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["open_ref", "open_rows"]

_MOST_BYTES = 1 << 30
_PIECE = 1 << 20


async def open_rows(said: Any, reading: Reading) -> Frame:
    """Rows that the task was given: a table, or a list of mappings or values."""
    if isinstance(said, TableValue) and not said.native:
        said = said.plain()
    if isinstance(said, TableValue | Rows):
        return await _of_table(said.arrow, reading)
    if isinstance(said, LazyMapping):
        said = plain(said)
    if isinstance(said, Mapping) and "rows" in said:
        said = said["rows"]
    if not isinstance(said, list | tuple | LazySequence):
        raise InvalidInput("it is neither a table nor a list of rows", hint="give rows: [{id: 1}, {id: 2}]")
    return await _of_items(said, reading)


async def _of_table(table: pa.Table, reading: Reading) -> Frame:
    """One that is in memory already."""
    if not table.num_columns:
        return frame_of({})
    path = reading.place("rows") / "000000.parquet"
    await in_thread(stage, Opened(table.schema, iter(table.to_batches())), path)
    return frame_of({table.schema.remove_metadata(): [path]})


async def _of_items(items: Iterable[Any], reading: Reading) -> Frame:
    """Rows one after the other, of which some at a time are in memory."""
    spool = Spool(reading.place("rows"))
    await in_thread(spool.add, items)
    return frame_of(await in_thread(spool.end))


async def open_ref(said: Any, reading: Reading) -> Frame:
    """What a reference or an address stands for."""
    if isinstance(said, str):
        return await _of_address(said, reading)
    if not isinstance(said, Mapping):
        raise InvalidInput("ref is not a reference", hint="give the ref of a result: {{ load.ref }}")
    if said.get("form") == "files":
        return await open_files(str(said["path"]), said.get("format"), {}, reading)
    ref = payload_ref_of(dict(said))
    if said.get("form") == FRAMES:
        listed = await reading.means.results.value(ref)
        return await _of_refs(outputs_in(listed, ref), reading)
    return await _of_stored(ref, reading)


async def _of_stored(ref: PayloadRef, reading: Reading) -> Frame:
    """A result or a payload as it is stored. Only one that is neither a table nor a list is read whole."""
    content = await reading.means.tiers.mapped(ref)
    match formats.sniff(bytes(content[:8])):
        case "feather" | "stream":
            if await in_thread(_holds_rows, content):
                return await _of_refs([ref], reading)
        case "json" | "zstd" if await in_thread(_is_array, content):
            return await _of_items(formats.json_items(_pieces(content)), reading)
    return await open_rows(await reading.means.results.value(ref), reading)


async def _of_address(uri: str, reading: Reading) -> Frame:
    name = parse(uri)
    if isinstance(name, ResourceName):
        return await open_files(str(reading.means.dataset(uri).path), None, {}, reading)
    if isinstance(name, PayloadName) and name.tenant == reading.means.tenant:
        return await _of_stored(await reading.means.tiers.ref_of(name), reading)
    value = await reading.resolver.read(uri, reading.caller(), limit=_MOST_BYTES)
    if isinstance(value, Mapping) and isinstance(value.get("ref"), Mapping):
        return await open_ref(value["ref"], reading)
    return await open_rows(value, reading)


def _pieces(content: mmap.mmap | bytes) -> Iterator[bytes]:
    for start in range(0, len(content), _PIECE):
        yield content[start : start + _PIECE]


def _is_array(content: mmap.mmap | bytes) -> bool:
    """Whether JSON, with zstd or without, is a list."""
    try:
        next(formats.json_items(_pieces(content)), None)
    except InvalidInput:
        return False
    return True


def _holds_rows(content: mmap.mmap | bytes) -> bool:
    first = next(formats.batches_in(content), None)
    return first is not None and holds_rows(first.schema)


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
    return frame_of(groups)


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
