"""The transfer kind.

By itself in a step a transfer is a data stage: whoever keeps the stage has the task do one thing after the other
(`Do`), each with the fields rendered and the credentials resolved as for any task. Inside of a pipeline or a loop the
task does all of it in one go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from noetl.data.frame.given import Given
from noetl.data.means import Means
from noetl.data.stage.inputs import Inputs
from noetl.data.stage.manifest import Manifest, pieces_of
from noetl.data.stage.pinning import Found
from noetl.data.stage.slices import SliceReader
from noetl.data.transfer.mapping import Pair, mapped, pairs_of, unified
from noetl.data.transfer.sides import SourceSide, TargetSide, source_of, target_of
from noetl.data.transfer.sources import fields_of, read_source
from noetl.data.transfer.targets import Target, open_target
from noetl.errors import InvalidInput, NoetlError, NotFound, StorageFull, Unavailable
from noetl.kernel.event import Json
from noetl.payloads.blocking import in_thread
from noetl.payloads.tables import TableValue
from noetl.tools.base import Call, Outcome, Rendering, failed, ok
from noetl.tools.loading import Part, RowRefused
from noetl.tools.values import Refused

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DO", "Do", "TransferTool"]

DO = "transfer"
"""Under this name a call is offered the `Do` that it is for."""
_PIECE_ROWS = 50_000
_PIECE_BYTES = 64 << 20

T = TypeVar("T")
_log = logging.getLogger("noetl.transfer")


class Do(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of one call: to read the source and make the target ready, to load the rows of a part, to show
    all parts, or to leave nothing behind."""

    what: Literal["open", "load", "close", "drop"]
    effect_key: str
    """The key of the whole transfer; each part has one of its own."""
    part: int = 0
    first: int = 0
    """The number of the first row of the part in the whole source."""
    given: Any = None
    keep: bool = False
    """Whether somebody reads the rows of the part afterwards."""
    parts: tuple[Part, ...] = ()


class TransferTool:
    """Moves rows from a source into a target."""

    kind = "transfer"
    rendering: Mapping[str, Rendering] = {"source": "lazy", "target": "strict"}
    required: tuple[tuple[str, ...], ...] = (("target",),)

    def __init__(self, *, means: Callable[[], Means]) -> None:
        self._means = means

    def side_effecting(self, fields: Json) -> bool:
        """Always: a table has more rows afterwards."""
        return True

    async def run(self, call: Call) -> Outcome:
        """Do what the call is for."""
        do = call.offered.get(DO)
        try:
            return ok(await (self._do(call, do) if isinstance(do, Do) else self._all(call)))
        except Refused as error:
            return error.outcome
        except NoetlError as error:
            return _failure(error)

    async def close(self) -> None:
        """Nothing to let go of: connections end with the call that has made them."""

    async def _do(self, call: Call, do: Do) -> Any:
        side = target_of(call.fields)
        target = open_target(side, call, do.effect_key, self._means().extensions)
        match do.what:
            case "open":
                return msgspec.to_builtins(await self._open(call, side, target))
            case "load":
                table = await _load(side, target, do.part, do.first, do.given)
                return TableValue(table) if do.keep else None
            case "close":
                return await _close(call, side, target, do.parts)
        await in_thread(target.drop)
        return None

    async def _all(self, call: Call) -> Json:
        side = target_of(call.fields)
        means = self._means()
        target = open_target(side, call, call.effect_key, means.extensions)
        try:
            found = await self._open(call, side, target)
            parts = await self._load_all(side, target, found, means)
            return await _close(call, side, target, parts)
        except BaseException:
            with contextlib.suppress(NoetlError, OSError):  # the first error is the one to hear of
                await in_thread(target.drop)
            raise

    async def _load_all(self, side: TargetSide, target: Target, found: Found, means: Means) -> list[Part]:
        rows = sum(source.rows for source in found.sources)
        most = _PIECE_ROWS if found.bytes <= _PIECE_BYTES else max(1, rows * _PIECE_BYTES // found.bytes)
        sources = tuple(source for source in found.sources if source.rows)
        manifest = Manifest(sources=sources, rows_per_slice=most, is_exact=found.is_exact)
        reader, parts, first = SliceReader(means.tiers), list[Part](), 0
        for number, piece in enumerate(pieces_of(manifest)):
            given = Given(await reader.piece(manifest, piece), is_claim=manifest.is_exact)
            await _load(side, target, number, first, given)
            parts.append(Part(number, piece.rows))
            first += piece.rows
        return parts

    async def _open(self, call: Call, side: TargetSide, target: Target) -> Found:
        """Read the source and make the target ready, in this order: what cannot fit is said before anything moves."""
        source, means = source_of(call.fields), self._means()
        if call.resolver is None:
            raise InvalidInput("addresses cannot be followed here", hint="run the task with a resolver")
        shape = await in_thread(target.describe)
        folder = await in_thread(_own_folder, call.scratch)
        try:
            inputs = Inputs(means.tiers, means.results, call.resolver, call.directory, folder)
            sources = await _read(source, call, means, inputs, as_text=shape is not None)
            for reason in inputs.skipped:
                _log.warning("step '%s' left something out: %s", call.step, reason)
            fields = await fields_of(sources, inputs, list((side.mapping or {}).values()))
            is_empty = not sources or (inputs.is_exact and not any(one.rows for one in sources))
            pairs = [] if is_empty else pairs_of(shape, fields, side.mapping, side.mode)
            schema = await _schema(pairs, sources, inputs) if shape is None else None
        finally:
            await in_thread(shutil.rmtree, folder, ignore_errors=True)
        await in_thread(target.open, pairs, schema)
        return Found(
            sources=tuple(sources), bytes=inputs.bytes, is_exact=inputs.is_exact, skipped=tuple(inputs.skipped)
        )


async def _read(source: SourceSide, call: Call, means: Means, inputs: Inputs, *, as_text: bool) -> list[Any]:
    try:
        return await read_source(source, call, means, inputs, as_text=as_text)
    except NoetlError as error:
        error.message = f"source: {error.message}"
        error.args = (error.message,)
        raise


async def _schema(pairs: Sequence[Pair], sources: Sequence[Any], inputs: Inputs) -> pa.Schema:
    """The columns that files have, one type each for all parts."""
    import pyarrow as pa

    reader, schemas = SliceReader(inputs.tiers), list[Any]()
    for source in sources:
        if inputs.is_exact:
            for number in range(max(1, len(source.parts))):
                table = await (reader.part(source, number) if source.parts else reader.whole(source))
                schemas.append((await in_thread(mapped, Given(table, is_claim=True), pairs)).schema)
        else:
            empty = (await reader.schema(source)).empty_table()
            schemas.append(mapped(Given(empty), pairs).schema)
    return unified(schemas) if schemas else pa.schema([])


async def _load(side: TargetSide, target: Target, part: int, first: int, given: Given) -> pa.Table:
    def work() -> pa.Table:
        columns = target.columns()
        mapping = side.mapping or {}
        pairs = [Pair(column=column, field=mapping.get(column.name, column.name)) for column in columns]
        table = mapped(given, pairs)
        try:
            target.load(part, table)
        except RowRefused as problem:
            raise problem.at(first) from None
        return table

    return await in_thread(work)


async def _close(call: Call, side: TargetSide, target: Target, parts: Sequence[Part]) -> Json:
    def work() -> Json:
        key: tuple[str, ...] = ()
        if side.mode == "upsert":
            shape = target.describe()
            key = () if shape is None else shape.key
        return target.close(parts, key)

    said = await _stoppable(work, target)
    source = call.fields.get("source")
    return {
        "status": "success",
        "rows_transferred": sum(part.rows for part in parts),
        "chunks_processed": sum(-(-part.rows // side.chunk) for part in parts),
        "source": SourceSide(type="", options=dict(source)).shown if isinstance(source, Mapping) else {},
        "target": side.shown,
        **said,
    }


async def _stoppable(work: Callable[[], T], target: Target) -> T:
    """The result of work in a thread, which the database is told to give up if nobody waits for it any more."""
    running = asyncio.ensure_future(in_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            await in_thread(_stop, target)
            await asyncio.wait([running], timeout=0.2)
        if not running.cancelled():
            running.exception()
        raise


def _stop(target: Target) -> None:
    with contextlib.suppress(Exception):  # what cannot be told to stop comes to its end
        target.stop()


def _own_folder(scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="transfer-", dir=scratch.resolve()))


def _failure(error: NoetlError) -> Outcome:
    """The outcome of what the two sides could not do, or would not."""
    if isinstance(error, RowRefused):
        return failed("transform", "VALUE_INVALID", str(error), row=error.row, column=error.column)
    if (cause := getattr(error, "cause", None)) is not None:
        from noetl.tools.postgres.faults import StatementFailed, fault

        return fault(StatementFailed(error.message.partition(":")[0], cause))
    known: tuple[tuple[type[NoetlError], str, str], ...] = (
        (NotFound, "not_found", "INPUT_NOT_FOUND"),
        (StorageFull, "storage_quota", "STORAGE_FULL"),
        (Unavailable, "connection", "SIDE_UNAVAILABLE"),
        (InvalidInput, "schema", "INPUT_INVALID"),
    )
    for group, kind, code in known:
        if isinstance(error, group):
            return failed(kind, code, str(error))
    return failed("unknown", "TRANSFER_FAILED", str(error))
