"""What the keeper of a stage reports when all is said: counts, assignments, the seal, and where the output is."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import msgspec

from noetl.data.frame.output import LINEAGE
from noetl.data.frame.packed import Output, PackedOutputs
from noetl.data.frame.protocol import StagePlan
from noetl.data.frame.tally import Stats
from noetl.data.stage.listing import FRAMES
from noetl.engine.control import add_assignments
from noetl.engine.decide import Report
from noetl.engine.outcome import failure
from noetl.errors import NoetlError
from noetl.kernel import canonical
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.lazy import plain
from noetl.kernel.names import ResultCoordinates
from noetl.payloads.results import ResultStore
from noetl.runtime.stages.keeper import Ending
from noetl.runtime.storage import About, Storage

__all__ = ["report_of"]

_AT_ONCE = 500
_PREVIEW_ROWS = 10
_PREVIEW_BYTES = 16 * 1024


async def report_of(plan: StagePlan, ending: Ending, results: ResultStore) -> Report:
    """The report of the stage's command. What it refers to is durable."""
    tally = ending.table.tally
    stats, error = tally.stats, _error_of(plan, ending)
    assigned: Json = {}
    for said in tally.assignments():
        assigned = add_assignments(assigned, said)
    if plan.kind == "loop":
        slots = [msgspec.to_builtins(said) for said in tally.reports(plan.slots, ending.table.reports)]
        result: Json = {"results": slots, "stats": _counts(stats, plan), "count": stats.total}
    elif plan.kind == "transfer":
        result = _transferred(plan, stats, ending.finished)
    else:
        result = await _output_of(plan, stats, tally.outputs, results)
    status = "CANCELLED" if ending.is_cancelled else "COMPLETED" if error is None else "FAILED"
    stage: Json = {
        "stage_id": plan.stage_id,
        "kind": plan.kind,
        "status": status,
        "stats": _counts(stats, plan),
        "seal": msgspec.to_builtins(ending.seal),
    }
    return Report(command_id=plan.command_id, result=result, error=error, set=assigned, detail={"stage": stage})


def _error_of(plan: StagePlan, ending: Ending) -> Json | None:
    """Why the step run fails, if it does: it could not go on, or rows failed and that matters."""
    if ending.is_cancelled:
        return failure("CANCELLED", "the execution was cancelled while the stage ran")
    if ending.error is not None:
        return ending.error
    tally = ending.table.tally
    if plan.failure == "best_effort" or not tally.is_any_failed:
        return None
    return tally.first_error or failure("ROWS_FAILED", f"{tally.stats.failed} rows failed")


def _counts(stats: Stats, plan: StagePlan) -> Json:
    found: Json = msgspec.to_builtins(stats)
    return {**found, "slots": plan.slots}


def _transferred(plan: StagePlan, stats: Stats, finished: Json | None) -> Json:
    """What a transfer has moved: all, or nothing."""
    nothing: Json = {"status": "error", "rows_transferred": 0, "chunks_processed": 0}
    return {**(finished or nothing), "frames": stats.frames, "stats": _counts(stats, plan)}


async def _output_of(plan: StagePlan, stats: Stats, outputs: PackedOutputs, results: ResultStore) -> Json:
    """What a fan-out or reduce gives to those who come after it."""
    place = ResultCoordinates(
        tenant=plan.tenant,
        project=plan.project,
        execution_id=plan.execution_id,
        step=plan.step,
        run=plan.epoch,
        attempt=1,
        task=FRAMES,
        visit=1,
    )
    listing = _Listing(plan, stats, outputs)
    ref = await results.put_json(place, listing.text, plan.home)
    return {
        "ref": _reference(ref, listing.size, outputs),
        "rows": outputs.rows,
        "bytes": stats.bytes,
        "frames": stats.frames,
        "preview": await _preview(outputs, results),
        "stats": _counts(stats, plan),
    }


class _Listing:
    """The list of outputs as canonical JSON, in pieces: there may be very many of them."""

    def __init__(self, plan: StagePlan, stats: Stats, outputs: PackedOutputs) -> None:
        self._outputs = outputs
        self._before = {"bytes": stats.bytes}
        self._after = {"kind": FRAMES, "rows": outputs.rows, "stage_id": plan.stage_id, "step": plan.step}
        self.size = 0

    async def text(self) -> AsyncIterator[bytes]:
        """The pieces; `size` is how many bytes they were, when all are taken."""
        self.size = 0
        for piece in self._pieces():
            self.size += len(piece)
            yield piece

    def _pieces(self) -> Iterator[bytes]:
        yield canonical.encode(self._before)[:-1] + b',"frames":['
        listed = (canonical.encode(_listed(one)) for one in self._outputs)
        separator = b""
        while some := list(itertools.islice(listed, _AT_ONCE)):
            yield separator + b",".join(some)
            separator = b","
        yield b"]," + canonical.encode(self._after)[1:]


def _listed(one: Output) -> Json:
    slot, claim, row = one.place
    return {
        "frame_id": one.frame_id,
        "slot": slot,
        "index": one.index,
        "claim_index": claim,
        "claim_row": row,
        "attempt": one.attempt,
        "rows": one.rows,
        "output": msgspec.to_builtins(one.output),
    }


def _reference(ref: PayloadRef, size: int, outputs: PackedOutputs) -> Json:
    """A reference as those to other results are, which says of what form the object is."""
    about = About(size=size, preview="", expires_at=None)
    reference: Json = Storage().left("ok", {}, ref, about)["reference"]
    reference.pop("preview", None)
    return {**reference, "form": FRAMES, "rows": outputs.rows, "frames": outputs.count}


async def _preview(outputs: PackedOutputs, results: ResultStore) -> list[Any]:
    """The first rows, for people. That they cannot be shown is no reason to fail."""
    first = next((one.output for one in outputs if one.output.rows), None)
    if first is None:
        return []
    with contextlib.suppress(NoetlError):
        value = await results.value(first)
        rows = plain(value["rows"][:_PREVIEW_ROWS]) if isinstance(value, Mapping) and "rows" in value else []
        shown = [{name: item for name, item in row.items() if name not in LINEAGE} for row in rows]
        while shown and len(canonical.encode(shown)) > _PREVIEW_BYTES:
            shown.pop()
        return shown
    return []
