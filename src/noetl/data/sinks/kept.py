"""Rows that nobody has named a place for: payloads of this installation, and a list of them that a `ref` leads to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from noetl.data.sinks.written import part_files
from noetl.data.stage.files import read_batches, write_batches
from noetl.data.stage.listing import FRAMES
from noetl.kernel import canonical
from noetl.kernel.event import Json, PayloadRef
from noetl.payloads.blocking import in_thread
from noetl.payloads.formats import MEDIA_TYPES
from noetl.payloads.tiers import PayloadTiers

__all__ = ["keep", "keep_json", "keep_text", "reference_of"]

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_PIECE = 1 << 20


async def keep(folder: Path, step: str, tiers: PayloadTiers) -> tuple[Json, int]:
    """Store what Spark has written below a directory; the reference to all of it, and its bytes.

    The form is that of a stage's outputs, so loops and reduces go over it without a copy.
    """
    outputs: list[PayloadRef] = []
    for path in part_files(folder):
        opened = await in_thread(read_batches, path, "parquet", {})
        written = await in_thread(write_batches, path.with_suffix(".arrow"), opened)
        rows = sum(written.parts)
        if rows or not outputs:  # the first has the columns even if it has no rows
            ref = await tiers.store(_pieces(written.path), media_type=MEDIA_TYPES["feather"], rows=rows)
            outputs.append(ref)
        await in_thread(written.path.unlink)
    rows, size = sum(ref.rows or 0 for ref in outputs), sum(ref.bytes for ref in outputs)
    frames = [
        {"index": index, "rows": ref.rows, "output": msgspec.to_builtins(ref)} for index, ref in enumerate(outputs)
    ]
    listed = {"kind": FRAMES, "step": step, "rows": rows, "bytes": size, "frames": frames}
    return await keep_json(listed, tiers, form=FRAMES, rows=rows, frames=len(outputs)), size


async def keep_json(value: Any, tiers: PayloadTiers, **more: Any) -> Json:
    """Store a value; the reference to it, with what else is to stand in it."""
    data = canonical.encode(value)
    return reference_of(await tiers.store(data, media_type=_JSON), **more)


async def keep_text(text: str, tiers: PayloadTiers) -> str:
    """Store text; its address."""
    return (await tiers.store(text.encode(), media_type=_TEXT)).uri


def reference_of(ref: PayloadRef, **more: Any) -> Json:
    """A reference to a payload, as those to results are."""
    meta = {"content_type": ref.media_type, "bytes": ref.bytes, "sha256": ref.sha256}
    return {"kind": "result_ref", "ref": ref.uri, "meta": meta, **more}


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await in_thread(file.read, _PIECE):
            yield piece
