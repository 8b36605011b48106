"""Sources: whatever holds rows, read once into objects that stay what they are.

Tables keep their columns. Rows that come as JSON (of a service, of a file of JSON lines, of a step) stay JSON, so that
a field that is a number here and a text there is converted by the target and by nobody before it.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.frame.output import claimed_rows, json_table
from noetl.data.means import Means
from noetl.data.sources.http import http_rows
from noetl.data.sources.postgres import arrow_type, parts_of, read_part, whole_table
from noetl.data.sources.reading import Reading
from noetl.data.stage.files import Opened, Written, form_of, input_stream, write_batches
from noetl.data.stage.inputs import FILE_KEYS, Inputs
from noetl.data.stage.manifest import Source
from noetl.data.stage.slices import SliceReader
from noetl.data.transfer.mapping import JSON_TEXT, Fields, RowFields, TableFields
from noetl.data.transfer.sides import SourceSide
from noetl.errors import InvalidInput, NotFound
from noetl.kernel import canonical
from noetl.kernel.lazy import LazyMapping, LazySequence, plain
from noetl.payloads.blocking import in_thread
from noetl.payloads.tables import Rows, TableValue
from noetl.tools.base import Call

if TYPE_CHECKING:
    import pyarrow as pa

    from noetl.tools.postgres.bulk import Column
    from noetl.tools.postgres.credential import Place

__all__ = ["fields_of", "read_source"]

_AT_ONCE = 4
"""Connections that read the parts of a table at the same time."""
_PARTITIONS = 8
_BLOCK_ROWS = 50_000
_BLOCK_BYTES = 16 << 20
_JSON_OIDS = (114, 3802)
_BYTEA = 17
_NUMERIC = 1700


async def read_source(side: SourceSide, call: Call, means: Means, inputs: Inputs, *, as_text: bool) -> list[Source]:
    """The rows of a source. With `as_text` a file that has no types keeps its texts. Raises NoetlError, Refused."""
    match side.type:
        case "http":
            return await _of_http(side, call, means, inputs)
        case "postgres":
            return await _of_postgres(side, inputs, as_text=as_text)
        case "duckdb":
            return [await _of_duckdb(side, call, means, inputs)]
        case "files":
            return await _of_files(side, means, inputs, as_text=as_text)
    return await _of_result(side, inputs)


async def fields_of(sources: Sequence[Source], inputs: Inputs, wanted: Sequence[str]) -> Fields:
    """What fields the rows have. Of rows that are JSON every one is looked at, a part at a time."""
    reader = SliceReader(inputs.tiers)
    if inputs.is_exact:
        seen = RowFields(wanted)
        for source in sources:
            for number in range(max(1, len(source.parts))):
                table = await (reader.part(source, number) if source.parts else reader.whole(source))
                await in_thread(_see, seen, table)
        return seen
    return TableFields([await reader.schema(source) for source in sources])


def _see(seen: RowFields, table: pa.Table) -> None:
    for row in claimed_rows(table):
        seen.see(row)


# --- Rows that are JSON -------------------------------------------------------------------------------------


async def _kept(blocks: AsyncIterator[list[str]], inputs: Inputs) -> list[Source]:
    inputs.is_exact = True
    return [await inputs.stored(json_table(texts)) async for texts in blocks if texts]


async def _of_http(side: SourceSide, call: Call, means: Means, inputs: Inputs) -> list[Source]:
    reading = Reading(msgspec.structs.replace(call, auth=side.auth), means, inputs.folder)
    options = {name: value for name, value in side.options.items() if name != "type"}

    async def blocks() -> AsyncIterator[list[str]]:
        async for rows in http_rows(options, reading):
            yield await in_thread(_texts, rows)

    return await _kept(blocks(), inputs)


def _texts(rows: Sequence[Any]) -> list[str]:
    return [canonical.encode(row).decode() for row in rows]


async def _of_result(side: SourceSide, inputs: Inputs) -> list[Source]:
    """A table, a list or a reference of a step before."""
    value = side.options.get("rows")
    if value is None:
        reference = side.options["ref"]
        return await inputs.of_ref(reference) if not isinstance(reference, str) else await inputs.of_input(reference)
    if isinstance(value, TableValue) and value.native:
        return [await inputs.stored(value.arrow)]
    if isinstance(value, Rows):
        return [await inputs.stored(value.arrow)]
    if isinstance(value, LazyMapping | LazySequence):
        value = plain(value)
    if isinstance(value, Mapping) and value.get("kind") == "result_ref":
        return await inputs.of_ref(value)
    if isinstance(value, Mapping) and isinstance(value.get("ref"), Mapping):
        return await inputs.of_ref(value["ref"])
    if isinstance(value, Mapping) and "rows" in value:
        value = value["rows"]
    if not isinstance(value, list | tuple):
        raise InvalidInput("source.rows is neither a table nor a list of rows", hint='rows: "{{ step.rows }}"')

    async def blocks() -> AsyncIterator[list[str]]:
        for first in range(0, len(value), _BLOCK_ROWS):
            yield await in_thread(_texts, value[first : first + _BLOCK_ROWS])

    return await _kept(blocks(), inputs)


# --- Files --------------------------------------------------------------------------------------------------


async def _of_files(side: SourceSide, means: Means, inputs: Inputs, *, as_text: bool) -> list[Source]:
    options = {name: value for name, value in side.options.items() if name != "type"}
    keys = [key for key in (*FILE_KEYS, "resource") if key in options]
    if len(keys) != 1:
        raise InvalidInput(f"source of type files has {' and '.join(keys)}", hint="keep one")
    (key,) = keys
    value = options.pop(key)
    if isinstance(value, Mapping):
        options, value = {**options, **value}, value.get("path", "")
    name = str(means.dataset(str(value)).path) if key == "resource" else str(value)
    said = None if key in ("path", "resource") else key
    if as_text:
        options.setdefault("infer", False)
    try:
        found = await inputs.found(name)
    except NotFound as problem:
        if options.get("on_missing") != "skip":
            raise
        inputs.skipped.append(problem.message)
        return []
    if not isinstance(found, list):
        return await inputs.of_value(found, ())
    if {form_of(path.name, said) for path in found} == {"json"}:
        return await _kept(_lines(found), inputs)
    return await inputs.of_paths(found, said, options)


async def _lines(paths: Sequence[Path]) -> AsyncIterator[list[str]]:
    for path in paths:
        blocks = _blocks(path)
        while (block := await in_thread(next, blocks, None)) is not None:
            yield block


def _blocks(path: Path) -> Iterator[list[str]]:
    """The rows of a file, each as its JSON: those of its lines, or of the one list that the file is."""
    with io.TextIOWrapper(io.BufferedReader(input_stream(path)), encoding="utf-8") as file:
        block: list[str] = []
        size = number = 0
        for line in file:
            number += 1
            text = line.strip()
            if not text:
                continue
            if number == 1 and text.startswith("["):
                yield _list_of(path, text + file.read())
                return
            _check_line(path, number, text)
            block.append(text)
            size += len(text)
            if len(block) == _BLOCK_ROWS or size > _BLOCK_BYTES:
                yield block
                block, size = [], 0
        yield block


def _check_line(path: Path, number: int, text: str) -> None:
    try:
        canonical.decode(text.encode())
    except canonical.NotCanonical as error:
        raise InvalidInput(f"{path}:{number}: this line is no JSON: {error}", hint="one row on each line") from None


def _list_of(path: Path, text: str) -> list[str]:
    try:
        return _texts(msgspec.json.decode(text, type=list[Any]))
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{path} is no list in JSON: {error}") from None


# --- Databases ----------------------------------------------------------------------------------------------


async def _of_duckdb(side: SourceSide, call: Call, means: Means, inputs: Inputs) -> Source:
    from noetl.tools.duckdb.reading import query_batches

    options = side.options
    given = options.get("database")
    database = str((call.directory / str(given) if given else call.scratch / "execution.duckdb").resolve())
    path = inputs.new_file("duckdb")

    def work() -> Written:
        with query_batches(database, options.get("query"), options.get("table"), means.extensions) as opened:
            return write_batches(path, Opened(opened.schema, opened.batches))

    return await inputs.adopt(await in_thread(work))


async def _of_postgres(side: SourceSide, inputs: Inputs, *, as_text: bool) -> list[Source]:
    """All parts of one state of the database, each read by a connection of its own."""
    from noetl.tools.postgres.credential import place_of

    place = place_of(side.auth)
    written = await in_thread(_read_postgres, place, side.options, inputs, as_text=as_text)
    return [await inputs.adopt(one) for one in written]


def _read_postgres(place: Place, options: Mapping[str, Any], inputs: Inputs, *, as_text: bool) -> list[Written]:
    from noetl.tools.postgres.bulk import open_snapshot

    query = str(options["query"]).strip().rstrip(";") if options.get("query") else whole_table(str(options["table"]))
    with open_snapshot(place) as snapshot, ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        columns, queries = snapshot.columns(query), [query]
        if (by := options.get("partition_column")) is not None:
            if str(by) not in [one.name for one in columns]:
                raise InvalidInput(f"source.partition_column: there is no column '{by}'")
            bounds = snapshot.bounds(query, str(by))
            queries = parts_of(query, str(by), bounds, int(options.get("partitions") or _PARTITIONS))
        kinds = _Kinds(columns, as_text=as_text)
        opened = [kinds.opened(read_part(place, part, kinds.read, snapshot.name)) for part in queries]
        return list(threads.map(write_batches, [inputs.new_file("postgres") for _ in queries], opened))


class _Kinds:
    """The columns of a query: as COPY gives them, and as they are kept."""

    def __init__(self, columns: Sequence[Column], *, as_text: bool) -> None:
        """With `as_text` a number of any size stays what is written: no type of Arrow holds it."""
        import pyarrow as pa

        names = [column.name for column in columns]
        if len(set(names)) != len(names):
            raise InvalidInput(f"two columns of the query have one name: {', '.join(names)}", hint="rename one with AS")

        def kind(column: Column) -> pa.DataType:
            is_free = column.oid == _NUMERIC and column.precision is None
            return pa.string() if is_free and as_text else arrow_type(column)

        self.read = pa.schema([(column.name, kind(column)) for column in columns])
        self._binary = [column.name for column in columns if column.oid == _BYTEA]
        self._kept = pa.schema(
            [
                pa.field(
                    column.name,
                    pa.binary() if column.oid == _BYTEA else kind(column),
                    metadata=JSON_TEXT if column.oid in _JSON_OIDS else None,
                )
                for column in columns
            ]
        )

    def opened(self, batches: Iterator[pa.RecordBatch]) -> Opened:
        """The rows of one query as they are kept."""
        return Opened(self._kept, map(self._decoded, batches))

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns: list[Any] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in self._binary:
                texts: list[Any] = column.to_pylist()
                values = [None if text is None else bytes.fromhex(text.removeprefix("\\x")) for text in texts]
                columns.append(pa.array(values, pa.binary()))
            else:
                columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._kept)
