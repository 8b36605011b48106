"""The outputs of an earlier stage: what its committed frames have made, in the order of their rows."""

from __future__ import annotations

from typing import NamedTuple

from noetl.data.frame.log import StageLog
from noetl.kernel.event import PayloadRef
from noetl.kernel.streams import stage_stream
from noetl.kernel.tail import Stream

__all__ = ["Made", "outputs_of"]

_PAGE = 1000


class Made(NamedTuple):
    """What a frame has left, and which frame that was."""

    ref: PayloadRef
    frame_id: int


async def outputs_of(ledger: StageLog, tenant: str, execution_id: int, stage_id: int) -> list[Made]:
    """What the frames of a stage have left, by the log. Frames that failed have left nothing."""
    stream = Stream(tenant, stage_stream(execution_id, stage_id))
    places: dict[int, tuple[int, int, int]] = {}
    found: list[tuple[tuple[int, int, int], Made]] = []
    after = 0
    while page := await ledger.read(stream, after_version=after, limit=_PAGE):
        for item in page:
            event, said = item.event, item.event.payload
            after = event.stream_version
            frame_id = event.frame_id or 0
            if event.event_type == "frame.dispatched" and frame_id not in places:
                index: int = said["frame_index"]
                places[frame_id] = (said["slot"], said.get("claim_index", index), said.get("claim_row", 0))
            elif event.event_type == "frame.committed" and event.payload_ref is not None:
                found.append((places[frame_id], Made(event.payload_ref, frame_id)))
    return [made for _, made in sorted(found, key=lambda one: one[0])]
