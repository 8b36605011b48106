"""The checksum of a state from its stored rows, page by page: its cost in memory does not grow with the state."""

from __future__ import annotations

from collections.abc import AsyncIterator

from noetl.kernel.fold import RowSum, new_state, state_checksum
from noetl.kernel.tail import Stream
from noetl.ports.projections import ProjectionStore

__all__ = ["stored_checksum"]


async def stored_checksum(projections: ProjectionStore, root: Stream, registry_digest: str) -> str:
    """What the rows that the projector has written come to; a replay to the same position gives the same."""
    bundle: dict[str, str] = {}
    for surface in new_state(root.stream_id).surfaces:
        total = RowSum()
        async for row in _rows(projections, root, surface):
            total.add(row)
        bundle[surface] = total.checksum(surface)
    return state_checksum(bundle, registry_digest)


async def _rows(projections: ProjectionStore, root: Stream, surface: str) -> AsyncIterator[bytes]:
    after = ""
    while page := await projections.page(root, surface, after=after):
        for item in page:
            yield item.row
        after = page[-1].row_id
