"""Inputs: what somebody names as rows, found and read into objects of ours, or left where it lies still.

Results and frame outputs are taken by their references, Parquet and Arrow files by name, size and time of change. All
else (lists, CSV, JSON lines, what others keep in buckets) is read once and becomes an Arrow file of ours, a batch at a
time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from noetl.data.copies import copy_objects
from noetl.data.frame.output import claimed_table
from noetl.data.stage.files import (
    FileForm,
    Opened,
    Written,
    drift,
    find_files,
    form_of,
    pin_file,
    read_batches,
    write_batches,
)
from noetl.data.stage.listing import FRAMES, outputs_in
from noetl.data.stage.manifest import Source
from noetl.data.stage.outputs import Made, Said
from noetl.data.stage.slices import SCALARS
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.lazy import LazyMapping, plain
from noetl.kernel.names import ResultName, parse
from noetl.payloads.blocking import in_thread
from noetl.payloads.formats import MEDIA_TYPES
from noetl.payloads.resolver import Caller, Resolver, scheme_of
from noetl.payloads.results import ResultStore
from noetl.payloads.tables import TableValue
from noetl.payloads.tiers import PayloadTiers

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FILE_KEYS", "Inputs", "payload_ref_of"]

WHOLE_BYTES = 8 << 20
"""A stored table that is smaller is read whole."""
FILE_KEYS = ("path", "csv", "json", "parquet", "arrow", "orc", "text")
_PIECE = 1 << 20
_SAID_AT_ONCE = 100


class Inputs:
    """What is read for one stage or one task, and what was noted on the way."""

    def __init__(
        self, tiers: PayloadTiers, results: ResultStore, resolver: Resolver, directory: Path, folder: Path
    ) -> None:
        """`directory` is where relative paths begin; `folder` is for what has to lie on a disk for a moment."""
        self.tiers = tiers
        self._results = results
        self.resolver = resolver
        self.directory = directory
        self.folder = folder
        self.skipped: list[str] = []
        self.bytes = 0
        """About how many bytes the rows are in memory."""
        self._files = 0
        self.is_exact = self.is_scalar = False

    def new_file(self, name: str) -> Path:
        """A file of ours that nobody else has."""
        self._files += 1
        return self.folder / f"{name}{self._files}.arrow"

    async def of_input(self, said: Any) -> list[Source]:
        if isinstance(said, str):
            return await self.of_files(said, None, {})
        if isinstance(said, list):
            return await self.of_rows(said)
        if said.get("kind") == "result_ref":
            return await self.of_ref(said)
        if "step" in said:
            return await self.of_ref(said["ref"], said.get("path", ()))
        return await self.of_mapping(said)

    async def of_mapping(self, said: Json) -> list[Source]:
        key = next((key for key in (*FILE_KEYS, "resource", "ref", "rows") if key in said), None)
        if key is None:
            raise InvalidInput(
                f"a fan-out on workers cannot read {', '.join(said)}",
                hint="load it in a step before this one, or run the loop with engine: spark",
            )
        value = said[key]
        if key == "rows":
            return await self.of_rows(value)
        if key == "ref":
            return await self.of_ref(value)
        options = {name: option for name, option in said.items() if name != key}
        if isinstance(value, Mapping):
            options, value = {**options, **value}, value.get("path", "")
        return await self.of_files(str(value), None if key in ("path", "resource") else key, options)

    # --- Results and lists

    async def of_rows(self, rows: Sequence[Any]) -> list[Source]:
        if not rows:
            return []
        self.is_exact = True
        if not all(isinstance(row, Mapping) for row in rows):
            self.is_scalar = True
            rows = [{SCALARS: row} for row in rows]
        return [await self.stored(await in_thread(claimed_table, [dict(row) for row in rows]))]

    async def of_ref(self, reference: Any, path: Sequence[str] = ()) -> list[Source]:
        if isinstance(reference, str):
            return await self.of_value(await self.resolver.read(reference, limit=WHOLE_BYTES * 128), path)
        if reference.get("form") == "files" and not path:
            return await self.of_files(str(reference["path"]), reference.get("format"), {})
        ref = payload_ref_of(reference)
        if reference.get("form") == FRAMES and not path:
            listed = await self._results.value(ref)
            ids = [frame.get("frame_id", 0) for frame in listed["frames"] if frame.get("output")]
            made = [Made(output, number) for output, number in zip(outputs_in(listed, ref), ids, strict=True)]
            name = parse(ref.uri)
            return await self.of_made(made, name.coordinates.execution_id if isinstance(name, ResultName) else 0)
        if ref.media_type == MEDIA_TYPES["feather"] and not path and await self._is_native(ref):
            return await self.of_refs([ref])
        return await self.of_value(await self._results.value(ref), path)

    async def _is_native(self, ref: PayloadRef) -> bool:
        """Whether a stored table is the result itself, and not how some JSON was stored."""
        value = await self._results.value(ref)
        return isinstance(value, TableValue) and value.native

    async def of_value(self, value: Any, path: Sequence[str]) -> list[Source]:
        for name in path:
            if not isinstance(value, Mapping):
                raise InvalidInput(f"'{name}' is not in the result that `in` names")
            if name in value:
                value = value[name]
            elif name not in ("data", "result", "context"):
                raise InvalidInput(f"'{name}' is not in the result that `in` names", hint=f"it has {', '.join(value)}")
        if isinstance(value, TableValue) and value.native:
            return [await self.stored(value.arrow)]
        if isinstance(value, Mapping) and "rows" in value:
            value = value["rows"]
        value = plain(value) if isinstance(value, LazyMapping) or not isinstance(value, list) else value
        if not isinstance(value, list | tuple):
            raise InvalidInput("the result that `in` names is neither a table nor a list")
        return await self.of_rows(value)

    async def of_made(self, made: Sequence[Made], execution_id: int) -> list[Source]:
        """What the frames of a stage have left, a source for each. What their events say is stored now, together."""
        found: list[Source] = []
        for is_said, some in groupby(made, lambda one: one.said is not None):
            if is_said:
                found += await self._of_said([one.said for one in some if one.said is not None])
            else:
                found += await self.of_refs([one.ref for one in some if one.ref is not None])
        return found

    async def _of_said(self, said: Sequence[Said]) -> list[Source]:
        found: list[Source] = []
        alike: list[pa.Table] = []
        size = 0
        for number in range(0, len(said), _SAID_AT_ONCE):
            for table in await in_thread(_tables_of, said[number : number + _SAID_AT_ONCE]):
                size += table.nbytes
                if alike and (table.schema != alike[0].schema or size > WHOLE_BYTES):
                    found += await self._together(alike)
                    alike, size = [], table.nbytes
                alike.append(table)
        return found + await self._together(alike)

    async def _together(self, tables: Sequence[pa.Table]) -> list[Source]:
        """Small tables with the same columns, as sources that lie in one place."""
        import pyarrow as pa

        if not tables:
            return []
        whole = pa.concat_tables(tables).combine_chunks()
        self.bytes += whole.nbytes
        ref = msgspec.structs.replace(await self.tiers.store_table(whole), ipc=None)
        firsts = accumulate((table.num_rows for table in tables[:-1]), initial=0)
        return [
            Source(form="stored", rows=table.num_rows, ref=ref, first=first)
            for first, table in zip(firsts, tables, strict=True)
        ]

    async def of_refs(self, refs: Iterable[PayloadRef]) -> list[Source]:
        """Tables that are stored, as they are. The rows of batches are found out for the large ones only."""
        found = []
        for ref in refs:
            self.bytes += ref.bytes * 3  # they are compressed; what is wanted is an order of magnitude
            parts: tuple[int, ...] = ()
            rows = ref.rows
            if ref.bytes > WHOLE_BYTES or rows is None:
                parts = tuple([batch.num_rows async for batch in self.tiers.batches(ref)])
                rows = sum(parts)
            found.append(Source(form="stored", rows=rows, ref=msgspec.structs.replace(ref, ipc=None), parts=parts))
        return found

    async def stored(self, table: pa.Table) -> Source:
        self.bytes += table.nbytes
        if table.nbytes > WHOLE_BYTES:
            return await self.keep(Opened(table.schema, iter(table.to_batches())))
        ref = await self.tiers.store_table(table)
        return Source(form="stored", rows=table.num_rows, ref=msgspec.structs.replace(ref, ipc=None))

    async def keep(self, opened: Opened) -> Source:
        """Rows as an Arrow file in the store, without holding more than a batch of them."""
        written = await in_thread(write_batches, self.new_file("rows"), opened)
        return await self.adopt(written)

    async def adopt(self, written: Written, groups: Sequence[int] = ()) -> Source:
        self.bytes += written.size
        rows = sum(written.parts)
        ref = await self.tiers.store(_pieces(written.path), media_type=MEDIA_TYPES["feather"], rows=rows)
        await in_thread(written.path.unlink)
        return Source(form="stored", rows=rows, ref=ref, parts=written.parts, groups=tuple(groups))

    # --- Files

    async def of_files(self, name: str, said: str | None, options: Json) -> list[Source]:
        for choice in ("on_missing", "on_drift", "on_error"):
            if options.get(choice, "fail") not in ("fail", "skip"):
                raise InvalidInput(f"{choice}: '{options[choice]}' must be fail or skip")
        try:
            found = await self.found(name)
        except NotFound as problem:
            if options.get("on_missing") != "skip":
                raise
            self.skipped.append(problem.message)
            return []
        return await self.of_paths(found, said, options) if isinstance(found, list) else await self.of_value(found, ())

    async def of_paths(self, paths: Sequence[Path], said: str | None, options: Json) -> list[Source]:
        """The rows of these files. `said` is their form, where their names do not say it."""
        sources: list[Source] = []
        first: pa.Schema | None = None
        for path in paths:
            first = await self._add_file(path, form_of(path.name, said), options, sources, first)
        return sources

    async def found(self, name: str) -> Any:
        """The files of a name; those that lie elsewhere, copied here. Or a value that somebody keeps as such."""
        match scheme_of(name):
            case "":
                return await in_thread(find_files, name, self.directory)
            case "file":
                return await in_thread(find_files, unquote(urlsplit(name).path), self.directory)
            case "noetl":
                return await self.resolver.read(name, limit=WHOLE_BYTES * 128)
        caller = Caller(directory=self.directory, scratch=self.folder)
        return (await copy_objects(name, self.resolver, caller, self.folder)).paths

    async def _add_file(
        self, path: Path, form: FileForm, options: Json, sources: list[Source], first: pa.Schema | None
    ) -> pa.Schema | None:
        """Pin one file; the columns that the files have, which the first of them decides."""
        try:
            is_ours = self.folder in path.parents  # a copy, which does not stay
            pinned = None if is_ours else await in_thread(pin_file, path, form)
            opened = await in_thread(read_batches, path, form, options) if pinned is None else None
            schema = pinned[1] if pinned is not None else opened.schema if opened is not None else None
            problem = drift(first, schema, path)
            if problem is None and pinned is not None:
                self.bytes += await in_thread(_memory_of, pinned[0])
                sources.append(pinned[0])
            elif problem is None and opened is not None:
                sources.append(await self.keep(opened))
        except InvalidInput as error:
            if options.get("on_error") != "skip":
                raise
            self.skipped.append(error.message)
            return first
        if problem is not None:
            if options.get("on_drift") != "skip":
                raise InvalidInput(problem, hint="make the files alike, or say on_drift: skip")
            self.skipped.append(problem)
        return first or schema


def payload_ref_of(reference: Json) -> PayloadRef:
    """The object that a reference (DSL 7.6) is about. Raises InvalidInput."""
    meta = reference.get("meta", {})
    try:
        return msgspec.convert(
            {
                "uri": reference["ref"],
                "sha256": meta["sha256"],
                "media_type": meta["content_type"],
                "bytes": meta["bytes"],
                "rows": reference.get("rows") if reference.get("form") != FRAMES else None,
                "key": reference.get("key"),
            },
            PayloadRef,
        )
    except (KeyError, msgspec.ValidationError) as error:
        raise InvalidInput(f"`in` has a reference that cannot be followed: {error}") from None


def _tables_of(said: Sequence[Said]) -> list[pa.Table]:
    return [one.table() for one in said]


def _memory_of(source: Source) -> int:
    """About how many bytes the rows of a file are in memory."""
    if source.form != "parquet":
        return source.size
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(source.path)
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await in_thread(file.read, _PIECE):
            yield piece
