"""Pinning: making sure that what a stage runs over is the same for every attempt of every frame.

What is read, and how, is a matter of `inputs`. Here it is put in order and cut into slices.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl.data.frame.protocol import Pinned, StagePlan
from noetl.data.stage.files import Opened, write_batches
from noetl.data.stage.groups import Dealer, sort_into_groups
from noetl.data.stage.inputs import Inputs
from noetl.data.stage.manifest import Manifest, Source, read_manifest, slices_of, write_manifest
from noetl.data.stage.outputs import Made
from noetl.data.stage.slices import SliceReader
from noetl.errors import InvalidInput
from noetl.kernel.event import Json, PayloadRef
from noetl.payloads.blocking import in_thread
from noetl.payloads.resolver import Resolver
from noetl.payloads.results import ResultStore
from noetl.payloads.tiers import PayloadTiers

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Found", "Pinner"]

OutputsOf = Callable[[str, int, int], Awaitable[list[Made]]]
"""The outputs of the frames of a stage, by tenant, execution and stage id."""

_REDUCE_ROWS = 50_000
_MANIFEST = "application/json"

_log = logging.getLogger("noetl.stages")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a transfer's source, as the task itself has read them."""

    sources: tuple[Source, ...]
    bytes: int = 0
    is_exact: bool = False
    skipped: tuple[str, ...] = ()


OpenTransfer = Callable[[StagePlan], Awaitable[Found]]
"""Reads the source of a transfer, and makes its target ready. Raises NoetlError."""


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
        open_transfer: OpenTransfer | None = None,
    ) -> None:
        """`directory` is where relative paths begin; `scratch` has a directory for each execution."""
        self._open_transfer = open_transfer
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
                                      self._directory, folder).manifest(self._open_transfer)  # fmt: skip
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


class _Pinning(Inputs):
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
        super().__init__(tiers, results, resolver, directory, folder)
        self._plan = plan
        self._outputs = outputs

    async def manifest(self, open_transfer: OpenTransfer | None) -> Manifest:
        groups = self._plan.source.get("groups")
        if self._plan.kind == "transfer":
            assert open_transfer is not None
            sources = self._noted(await open_transfer(self._plan))
        else:
            sources = await (self._of_groups(groups) if groups is not None else self.of_input(self._said["input"]))
        by = tuple(self._said.get("by") or ())
        if by:
            sources = await self._grouped(sources, by)
        return Manifest(
            sources=tuple(source for source in sources if source.rows),
            rows_per_slice=self._rows_per_slice(sum(source.rows for source in sources)),
            by=by,
            is_reduce=groups is not None,
            is_exact=self.is_exact and not by,
            is_scalar=self.is_scalar and not by,
            skipped=tuple(self.skipped),
        )

    @property
    def _said(self) -> Json:
        """What is said about the input and how it is cut."""
        source: Json = self._plan.source
        return source.get("transfer", source) if self._plan.kind == "transfer" else source

    def _noted(self, found: Found) -> list[Source]:
        if found.is_exact and self._said.get("by"):
            raise InvalidInput(
                "`by` needs columns, and the rows of this source are JSON", hint="leave `by` out; `partitions` is fine"
            )
        self.bytes, self.is_exact = found.bytes, found.is_exact
        self.skipped += found.skipped
        return list(found.sources)

    def _rows_per_slice(self, rows: int) -> int:
        policy, partitions = self._plan.policy, self._said.get("partitions")
        most = policy.max_rows
        if self._plan.kind == "reduce":
            most = max(1, min(_REDUCE_ROWS, -(-rows // (2 * self._plan.slots))))
        if partitions:
            most = min(most, max(1, -(-rows // partitions)))
        if rows and self.bytes > policy.max_bytes:
            most = min(most, max(1, rows * policy.max_bytes // self.bytes))
        return most

    # --- What is named

    async def _of_groups(self, said: Json) -> list[Source]:
        if "stage_id" in said:
            execution = int(said.get("execution_id") or self._plan.execution_id)
            made = await self._outputs(self._plan.tenant, execution, int(said["stage_id"]))
            return await self.of_made(made, execution)
        return await self.of_ref(said["input"])

    async def of_made(self, made: Sequence[Made], execution_id: int) -> list[Source]:
        """What frames have left, each with its frame, if that is one of this execution: ids are its own."""
        sources = await super().of_made(made, execution_id)
        if execution_id != self._plan.execution_id:
            return sources
        return [
            msgspec.structs.replace(source, frame_id=one.frame_id) for source, one in zip(sources, made, strict=True)
        ]

    # --- Groups

    async def _grouped(self, sources: Sequence[Source], by: Sequence[str]) -> list[Source]:
        """The same rows in the order of their keys."""
        reader = SliceReader(self.tiers)
        dealer = Dealer(by, self.folder, self.bytes)
        for source in sources:
            if not source.parts:
                await in_thread(dealer.add, await reader.whole(source))
            for number in range(len(source.parts)):
                await in_thread(dealer.add, await reader.part(source, number))
        found = []
        self.bytes = 0
        for path in await in_thread(dealer.finish):
            grouped = await in_thread(sort_into_groups, path, by)
            if not grouped.groups:
                continue
            batches = iter(grouped.batches)
            head = await in_thread(next, batches)
            opened = Opened(head.schema, _chain(head, batches))
            written = await in_thread(write_batches, self.new_file("group"), opened)
            found.append(await self.adopt(written, grouped.groups))
            await in_thread(path.unlink)
        return found


def _chain(head: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield head
    yield from rest
