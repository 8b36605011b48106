"""Pinning: making sure that what a stage runs over is the same for every attempt of every frame.

What lies still is left where it is: results and frame outputs by their references, Parquet and Arrow files by name,
size and time of change. All else (lists, CSV, JSON lines, what others keep in buckets) is read once and becomes an
Arrow file of ours, a batch at a time.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from noetl.data.copies import copy_objects
from noetl.data.frame.output import claimed_table
from noetl.data.frame.protocol import Pinned, StagePlan
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
from noetl.data.stage.groups import Dealer, sort_into_groups
from noetl.data.stage.manifest import Manifest, Source, read_manifest, slices_of, write_manifest
from noetl.data.stage.slices import SCALARS, SliceReader
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.lazy import LazyMapping, plain
from noetl.payloads.blocking import in_thread
from noetl.payloads.formats import MEDIA_TYPES
from noetl.payloads.resolver import Caller, Resolver, scheme_of
from noetl.payloads.results import ResultStore
from noetl.payloads.tables import TableValue
from noetl.payloads.tiers import PayloadTiers

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Pinner", "payload_ref_of"]

OutputsOf = Callable[[str, int, int], Awaitable[list[PayloadRef]]]
"""The outputs of the frames of a stage, by tenant, execution and stage id."""

_WHOLE_BYTES = 8 << 20
"""A stored table that is smaller is read whole."""
_REDUCE_ROWS = 50_000
_MANIFEST = "application/json"
_PIECE = 1 << 20
_FILE_KEYS = ("path", "csv", "json", "parquet", "arrow", "orc", "text")

_log = logging.getLogger("noetl.stages")


class Pinner:
    """Pins the inputs of stages of one installation."""

    def __init__(
        self,
        tiers: PayloadTiers,
        results: ResultStore,
        resolver: Resolver,
        outputs: OutputsOf,
        *,
        directory: Path,
        scratch: Path,
    ) -> None:
        """`directory` is where relative paths begin; `scratch` has a directory for each execution."""
        self._tiers = tiers
        self._results = results
        self._resolver = resolver
        self._outputs = outputs
        self._directory = directory
        self._scratch = scratch

    async def pin(self, plan: StagePlan, recorded: PayloadRef | None) -> Pinned:
        """What a stage runs over; with `recorded`, what was pinned before. Raises NoetlError."""
        if recorded is not None:
            return Pinned(ref=recorded, slices=slices_of(read_manifest(await self._tiers.fetch(recorded)), recorded))
        own = self._scratch / str(plan.execution_id)
        own.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="pin", dir=own))
        try:
            manifest = await _Pinning(plan, self._tiers, self._results, self._resolver, self._outputs,
                                      self._directory, folder).manifest()  # fmt: skip
        finally:
            await in_thread(shutil.rmtree, folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # a task may have something there
                own.rmdir()
        for reason in manifest.skipped:
            _log.warning("step '%s' left something out: %s", plan.step, reason)
        ref = await self._tiers.store(
            write_manifest(manifest), media_type=_MANIFEST, rows=sum(source.rows for source in manifest.sources)
        )
        return Pinned(ref=ref, slices=slices_of(manifest, ref))


class _Pinning:
    """One input while it is being pinned."""

    def __init__(
        self,
        plan: StagePlan,
        tiers: PayloadTiers,
        results: ResultStore,
        resolver: Resolver,
        outputs: OutputsOf,
        directory: Path,
        folder: Path,
    ) -> None:
        self._plan = plan
        self._tiers = tiers
        self._results = results
        self._resolver = resolver
        self._outputs = outputs
        self._directory = directory
        self._folder = folder
        self._skipped: list[str] = []
        self._bytes = 0
        self._files = 0
        self._is_exact = self._is_scalar = False

    async def manifest(self) -> Manifest:
        said = self._plan.source
        groups = said.get("groups")
        sources = await (self._of_groups(groups) if groups is not None else self._of_input(said["input"]))
        by = tuple(said.get("by") or ())
        if by:
            sources = await self._grouped(sources, by)
        return Manifest(
            sources=tuple(source for source in sources if source.rows),
            rows_per_slice=self._rows_per_slice(sum(source.rows for source in sources)),
            by=by,
            is_reduce=groups is not None,
            is_exact=self._is_exact and not by,
            is_scalar=self._is_scalar and not by,
            skipped=tuple(self._skipped),
        )

    def _rows_per_slice(self, rows: int) -> int:
        policy, partitions = self._plan.policy, self._plan.source.get("partitions")
        most = policy.max_rows
        if self._plan.kind == "reduce":
            most = max(1, min(_REDUCE_ROWS, -(-rows // (2 * self._plan.slots))))
        if partitions:
            most = min(most, max(1, -(-rows // partitions)))
        if rows and self._bytes > policy.max_bytes:
            most = min(most, max(1, rows * policy.max_bytes // self._bytes))
        return most

    # --- What is named

    async def _of_groups(self, said: Json) -> list[Source]:
        if "stage_id" in said:
            execution = int(said.get("execution_id") or self._plan.execution_id)
            return await self._of_refs(await self._outputs(self._plan.tenant, execution, int(said["stage_id"])))
        return await self._of_ref(said["input"])

    async def _of_input(self, said: Any) -> list[Source]:
        if isinstance(said, str):
            return await self._of_files(said, None, {})
        if isinstance(said, list):
            return await self._of_rows(said)
        if said.get("kind") == "result_ref":
            return await self._of_ref(said)
        if "step" in said:
            return await self._of_ref(said["ref"], said.get("path", ()))
        return await self._of_mapping(said)

    async def _of_mapping(self, said: Json) -> list[Source]:
        key = next((key for key in (*_FILE_KEYS, "resource", "ref", "rows") if key in said), None)
        if key is None:
            raise InvalidInput(
                f"a fan-out on workers cannot read {', '.join(said)}",
                hint="load it in a step before this one, or run the loop with engine: spark",
            )
        value = said[key]
        if key == "rows":
            return await self._of_rows(value)
        if key == "ref":
            return await self._of_ref(value)
        options = {name: option for name, option in said.items() if name != key}
        if isinstance(value, Mapping):
            options, value = {**options, **value}, value.get("path", "")
        return await self._of_files(str(value), None if key in ("path", "resource") else key, options)

    # --- Results and lists

    async def _of_rows(self, rows: Sequence[Any]) -> list[Source]:
        if not rows:
            return []
        self._is_exact = True
        if not all(isinstance(row, Mapping) for row in rows):
            self._is_scalar = True
            rows = [{SCALARS: row} for row in rows]
        return [await self._stored(await in_thread(claimed_table, [dict(row) for row in rows]))]

    async def _of_ref(self, reference: Any, path: Sequence[str] = ()) -> list[Source]:
        if isinstance(reference, str):
            return await self._of_value(await self._resolver.read(reference, limit=_WHOLE_BYTES * 128), path)
        if reference.get("form") == "files" and not path:
            return await self._of_files(str(reference["path"]), reference.get("format"), {})
        ref = payload_ref_of(reference)
        if reference.get("form") == "frames" and not path:
            listed = await self._results.value(ref)
            outputs = [frame["output"] for frame in listed["frames"] if frame.get("output")]
            return await self._of_refs([msgspec.convert(output, PayloadRef) for output in outputs])
        if ref.media_type == MEDIA_TYPES["feather"] and not path and await self._is_native(ref):
            return await self._of_refs([ref])
        return await self._of_value(await self._results.value(ref), path)

    async def _is_native(self, ref: PayloadRef) -> bool:
        """Whether a stored table is the result itself, and not how some JSON was stored."""
        value = await self._results.value(ref)
        return isinstance(value, TableValue) and value.native

    async def _of_value(self, value: Any, path: Sequence[str]) -> list[Source]:
        for name in path:
            if not isinstance(value, Mapping):
                raise InvalidInput(f"'{name}' is not in the result that `in` names")
            if name in value:
                value = value[name]
            elif name not in ("data", "result", "context"):
                raise InvalidInput(f"'{name}' is not in the result that `in` names", hint=f"it has {', '.join(value)}")
        if isinstance(value, TableValue) and value.native:
            return [await self._stored(value.arrow)]
        if isinstance(value, Mapping) and "rows" in value:
            value = value["rows"]
        value = plain(value) if isinstance(value, LazyMapping) or not isinstance(value, list) else value
        if not isinstance(value, list | tuple):
            raise InvalidInput("the result that `in` names is neither a table nor a list")
        return await self._of_rows(value)

    async def _of_refs(self, refs: Iterable[PayloadRef]) -> list[Source]:
        """Tables that are stored, as they are. The rows of batches are found out for the large ones only."""
        found = []
        for ref in refs:
            self._bytes += ref.bytes * 3  # they are compressed; what is wanted is an order of magnitude
            parts: tuple[int, ...] = ()
            rows = ref.rows
            if ref.bytes > _WHOLE_BYTES or rows is None:
                parts = tuple([batch.num_rows async for batch in self._tiers.batches(ref)])
                rows = sum(parts)
            found.append(Source(form="stored", rows=rows, ref=msgspec.structs.replace(ref, ipc=None), parts=parts))
        return found

    async def _stored(self, table: pa.Table) -> Source:
        self._bytes += table.nbytes
        if table.nbytes > _WHOLE_BYTES:
            return await self._keep(Opened(table.schema, iter(table.to_batches())))
        ref = await self._tiers.store_table(table)
        return Source(form="stored", rows=table.num_rows, ref=msgspec.structs.replace(ref, ipc=None))

    async def _keep(self, opened: Opened) -> Source:
        """Rows as an Arrow file in the store, without holding more than a batch of them."""
        self._files += 1
        written = await in_thread(write_batches, self._folder / f"rows{self._files}.arrow", opened)
        return await self._adopt(written)

    async def _adopt(self, written: Written, groups: Sequence[int] = ()) -> Source:
        self._bytes += written.size
        rows = sum(written.parts)
        ref = await self._tiers.store(_pieces(written.path), media_type=MEDIA_TYPES["feather"], rows=rows)
        await in_thread(written.path.unlink)
        return Source(form="stored", rows=rows, ref=ref, parts=written.parts, groups=tuple(groups))

    # --- Files

    async def _of_files(self, name: str, said: str | None, options: Json) -> list[Source]:
        for choice in ("on_missing", "on_drift", "on_error"):
            if options.get(choice, "fail") not in ("fail", "skip"):
                raise InvalidInput(f"{choice}: '{options[choice]}' must be fail or skip")
        try:
            found = await self._found(name)
        except NotFound as problem:
            if options.get("on_missing") != "skip":
                raise
            self._skipped.append(problem.message)
            return []
        if not isinstance(found, list):
            return await self._of_value(found, ())
        sources: list[Source] = []
        first: pa.Schema | None = None
        for path in found:
            first = await self._add_file(path, form_of(path.name, said), options, sources, first)
        return sources

    async def _found(self, name: str) -> Any:
        """The files of a name; those that lie elsewhere, copied here. Or a value that somebody keeps as such."""
        match scheme_of(name):
            case "":
                return await in_thread(find_files, name, self._directory)
            case "file":
                return await in_thread(find_files, unquote(urlsplit(name).path), self._directory)
            case "noetl":
                return await self._resolver.read(name, limit=_WHOLE_BYTES * 128)
        caller = Caller(directory=self._directory, scratch=self._folder)
        return (await copy_objects(name, self._resolver, caller, self._folder)).paths

    async def _add_file(
        self, path: Path, form: FileForm, options: Json, sources: list[Source], first: pa.Schema | None
    ) -> pa.Schema | None:
        """Pin one file; the columns that the files have, which the first of them decides."""
        try:
            is_ours = self._folder in path.parents  # a copy, which does not stay
            pinned = None if is_ours else await in_thread(pin_file, path, form)
            opened = await in_thread(read_batches, path, form, options) if pinned is None else None
            schema = pinned[1] if pinned is not None else opened.schema if opened is not None else None
            problem = drift(first, schema, path)
            if problem is None and pinned is not None:
                self._bytes += await in_thread(_memory_of, pinned[0])
                sources.append(pinned[0])
            elif problem is None and opened is not None:
                sources.append(await self._keep(opened))
        except InvalidInput as error:
            if options.get("on_error") != "skip":
                raise
            self._skipped.append(error.message)
            return first
        if problem is not None:
            if options.get("on_drift") != "skip":
                raise InvalidInput(problem, hint="make the files alike, or say on_drift: skip")
            self._skipped.append(problem)
        return first or schema

    # --- Groups

    async def _grouped(self, sources: Sequence[Source], by: Sequence[str]) -> list[Source]:
        """The same rows in the order of their keys."""
        reader = SliceReader(self._tiers)
        dealer = Dealer(by, self._folder, self._bytes)
        for source in sources:
            if not source.parts:
                await in_thread(dealer.add, await reader.whole(source))
            for number in range(len(source.parts)):
                await in_thread(dealer.add, await reader.part(source, number))
        found = []
        self._bytes = 0
        for path in await in_thread(dealer.finish):
            grouped = await in_thread(sort_into_groups, path, by)
            if not grouped.groups:
                continue
            batches = iter(grouped.batches)
            head = await in_thread(next, batches)
            opened = Opened(head.schema, _chain(head, batches))
            self._files += 1
            written = await in_thread(write_batches, self._folder / f"group{self._files}.arrow", opened)
            found.append(await self._adopt(written, grouped.groups))
            await in_thread(path.unlink)
        return found


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
                "rows": reference.get("rows") if reference.get("form") != "frames" else None,
                "key": reference.get("key"),
            },
            PayloadRef,
        )
    except (KeyError, msgspec.ValidationError) as error:
        raise InvalidInput(f"`in` has a reference that cannot be followed: {error}") from None


def _memory_of(source: Source) -> int:
    """About how many bytes the rows of a file are in memory."""
    if source.form != "parquet":
        return source.size
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(source.path)
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


def _chain(head: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield head
    yield from rest


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await in_thread(file.read, _PIECE):
            yield piece
