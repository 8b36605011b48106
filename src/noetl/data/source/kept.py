"""Results, payloads, outputs of stages and datasets as parts that tasks read one by one.

What is named is looked up once, when the columns are asked for. A part is then an object of the store, a file or some
row groups of it, or rows that stand in the log; reading one needs nothing but the part itself and the place.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from noetl.data.datasets import DIRECTORY, Datasets
from noetl.data.frame.output import LINEAGE, table_in
from noetl.data.source import files
from noetl.data.source.files import FilePart
from noetl.data.source.locators import DatasetLocator, KeptLocator, Locator
from noetl.data.source.place import Place
from noetl.data.sources.staging import fitting
from noetl.data.stage.slices import SCALARS
from noetl.errors import InvalidInput
from noetl.kernel.event import PayloadRef
from noetl.kernel.lazy import plain
from noetl.payloads import formats
from noetl.payloads.results import ResultStore
from noetl.payloads.tables import TableValue, is_native, value_in
from noetl.payloads.tiers import PayloadTiers

__all__ = ["Found", "Part", "check_columns", "find", "read"]

_OPENER = "noetl.runtime.lookup:open_lookup"
_BATCH_ROWS = 65_536


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that one task reads: of an object, of a file, or these."""

    ref: PayloadRef | None = None
    file: FilePart | None = None
    rows: bytes | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is there."""

    columns: bytes
    """The schema, as Arrow writes it."""
    parts: tuple[Part, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns, with types that Spark has."""
        return pa.ipc.read_schema(pa.py_buffer(self.columns))


class Lookup(Protocol):
    """The installation, as `noetl.runtime` opens it for a process that only reads."""

    results: ResultStore
    tiers: PayloadTiers

    async def find(self, uri: str) -> Any:
        """A reference, or a value."""
        ...


# --- Looking it up, where a query is planned ----------------------------------------------------------------


def find(place: Place, locator: Locator, *, lineage: bool = False) -> Found:
    """The columns and parts of what is named. Raises NotFound, InvalidInput, AccessRefused, Corruption."""
    if isinstance(locator, DatasetLocator):
        settings = place.settings(os.environ)
        root = Path(place.home) / DIRECTORY
        named = Datasets(root=root, tenant=settings.tenant.id, project=settings.tenant.project).find(locator.name)
        schema, found = files.find(named.path, named.uri)
        return _found(schema, [Part(file=file) for file in found], lineage=True)
    assert isinstance(locator, KeptLocator)
    return asyncio.run(_find_kept(place, locator.uri, lineage))


async def _find_kept(place: Place, uri: str, lineage: bool) -> Found:
    async with _opened(place) as lookup:
        schema, parts = await _parts(await lookup.find(uri), lookup, uri)
    return _found(schema, parts, lineage=lineage)


async def _parts(found: Any, lookup: Lookup, uri: str) -> tuple[pa.Schema, list[Part]]:
    if isinstance(found, PayloadRef):
        return await _of_ref(found, lookup, uri)
    if isinstance(found, TableValue) and found.native:
        return _of_table(found.arrow)
    value = plain(found)
    if isinstance(value, Mapping) and isinstance(value.get("ref"), Mapping):
        return await _of_reference(value["ref"], lookup, uri)
    return _of_table(_table_of(value))


async def _of_ref(ref: PayloadRef, lookup: Lookup, uri: str) -> tuple[pa.Schema, list[Part]]:
    data = await lookup.tiers.mapped(ref)
    form = formats.sniff(bytes(data[:8]))
    if form in ("feather", "stream"):
        schema = formats.schema_in(data)
        if ref.key is None or is_native(schema):
            return schema, [Part(ref=ref)]
        return await _parts(value_in(formats.table_in(data)), lookup, uri)
    if form is None:
        raise InvalidInput(
            f"'{uri}' is bytes ({ref.media_type}), not rows", hint="read it with noetl result or the API"
        )
    value = formats.json_of(bytes(data))
    if isinstance(value, Mapping) and value.get("kind") == "frames":
        return await _of_frames(value, lookup)
    return await _parts(value, lookup, uri)


async def _of_reference(reference: Mapping[str, Any], lookup: Lookup, uri: str) -> tuple[pa.Schema, list[Part]]:
    """What a stage or a spark task says that its rows are at."""
    from noetl.data.stage.inputs import payload_ref_of

    if reference.get("form") == "files":
        schema, found = files.find(Path(str(reference["path"])), uri, reference.get("format"))
        return schema, [Part(file=file) for file in found]
    ref = payload_ref_of(dict(reference))
    if reference.get("form") == "frames":
        listed = await lookup.results.value(ref) if ref.key else formats.json_of(await lookup.tiers.fetch(ref))
        return await _of_frames(listed, lookup)
    return await _of_ref(ref, lookup, uri)


async def _of_frames(listed: Mapping[str, Any], lookup: Lookup) -> tuple[pa.Schema, list[Part]]:
    """The outputs of frames. Of those whose columns are the same, one is looked at."""
    refs = [msgspec.convert(one["output"], PayloadRef) for one in listed["frames"] if one.get("output")]
    schemas: dict[str, pa.Schema] = {}
    for ref in refs:
        key = ref.schema_digest or ref.uri
        if key not in schemas:
            schemas[key] = formats.schema_in(await lookup.tiers.mapped(ref))
    return _together(list(schemas.values())), [Part(ref=ref) for ref in refs]


def _of_table(table: pa.Table) -> tuple[pa.Schema, list[Part]]:
    """Rows that are at hand, each part as an Arrow stream."""
    parts = []
    for first in range(0, table.num_rows, _BATCH_ROWS):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(first, _BATCH_ROWS))
        parts.append(Part(rows=sink.getvalue().to_pybytes()))
    return table.schema, parts


def _table_of(value: Any) -> pa.Table:
    """A list is rows, a mapping with `rows` has them, anything else is one row."""
    if isinstance(value, Mapping) and isinstance(value.get("rows"), list):
        value = value["rows"]
    rows = value if isinstance(value, list) else [] if value is None else [value]
    return table_in([row if isinstance(row, Mapping) else {SCALARS: row} for row in rows])


def _together(schemas: Sequence[pa.Schema]) -> pa.Schema:
    if not schemas:
        return pa.schema([])
    try:
        plain_ones = [schema.remove_metadata() for schema in schemas]
        return pa.unify_schemas(plain_ones, promote_options="permissive")
    except pa.ArrowException as error:
        raise InvalidInput(f"the parts do not have the same columns: {str(error).splitlines()[0]}") from None


def _found(schema: pa.Schema, parts: Sequence[Part], *, lineage: bool) -> Found:
    columns = [field for field in schema if lineage or field.name not in LINEAGE]
    shown = fitting(pa.schema(columns))
    return Found(columns=shown.serialize().to_pybytes(), parts=tuple(parts))


@contextlib.asynccontextmanager
async def _opened(place: Place) -> AsyncIterator[Lookup]:
    """The room above opens its stores; it is named, because it is above."""
    module, _, name = _OPENER.partition(":")
    opener: Callable[..., Any] = getattr(importlib.import_module(module), name)
    async with opener(Path(place.home), place.settings(os.environ)) as lookup:
        yield lookup


# --- Reading a part, where a task runs ----------------------------------------------------------------------


def check_columns(there: pa.Schema, asked: pa.Schema) -> None:
    """Raise InvalidInput for a schema that asks for columns that are not there."""
    for name in asked.names:
        if name not in there.names:
            raise InvalidInput(f"there is no column '{name}'", hint=f"columns: {', '.join(there.names)}")


def read(place: Place, part: Part, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part with the columns of a schema. What a part lacks is null."""
    for batch in _raw(place, part):
        yield _shaped(batch, columns)


def _raw(place: Place, part: Part) -> Iterator[pa.RecordBatch]:
    if part.rows is not None:
        with pa.ipc.open_stream(part.rows) as reader:
            yield from reader
    elif part.file is not None:
        yield from files.read(part.file)
    elif part.ref is not None:
        yield from _of_object(place, part.ref)


def _of_object(place: Place, ref: PayloadRef) -> Iterator[pa.RecordBatch]:
    """The batches of an object, one at a time."""
    with asyncio.Runner() as runner:
        opened = _opened(place)
        lookup = runner.run(_entered(opened))
        try:
            batches = lookup.tiers.batches(ref)
            while (batch := runner.run(_next(batches))) is not None:
                yield batch
        finally:
            runner.run(_left(opened))


async def _entered(opened: contextlib.AbstractAsyncContextManager[Lookup]) -> Lookup:
    return await opened.__aenter__()


async def _left(opened: contextlib.AbstractAsyncContextManager[Lookup]) -> None:
    await opened.__aexit__(None, None, None)


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)


def _shaped(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    names = batch.schema.names
    found: list[Any] = []
    for field in columns:
        if field.name in names:
            # Spark's times have microseconds; nanoseconds are cut off, as they are when Spark reads a file.
            options = pc.CastOptions(field.type, allow_time_truncate=True)
            column: Any = batch.column(names.index(field.name))
            found.append(column.cast(options=options))
        else:
            found.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(found, schema=columns)
