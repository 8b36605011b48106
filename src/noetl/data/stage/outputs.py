"""The outputs of an earlier stage: what its committed frames have made, in the order of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from noetl.data.frame.log import StageLog
from noetl.data.frame.output import Maker, output_of_rows
from noetl.data.frame.protocol import Returned
from noetl.data.frame.told import results_of
from noetl.kernel.event import Envelope, Json, PayloadRef
from noetl.kernel.streams import stage_stream
from noetl.kernel.tail import Stream

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Made", "Said", "outputs_of"]

_PAGE = 1000


class Said(NamedTuple):
    """What an event says its frame has made."""

    maker: Maker
    first: int
    """The number of the frame's first row in its claim."""
    returned: bytes
    """As JSON: there may be very many of them."""

    def table(self) -> pa.Table:
        """The same as it would have been stored."""
        returned = msgspec.json.decode(self.returned, type=Returned)
        results = results_of(returned)
        places = range(len(results)) if returned.at is None else returned.at
        return output_of_rows(self.maker, results, [self.first + place for place in places])


class Made(NamedTuple):
    """What a frame has left, and which frame that was."""

    ref: PayloadRef | None
    """Where it is stored, unless it was `said`."""
    frame_id: int
    said: Said | None = None


async def outputs_of(ledger: StageLog, tenant: str, execution_id: int, stage_id: int) -> list[Made]:
    """What the frames of a stage have left, by the log. Frames that failed have left nothing."""
    stream = Stream(tenant, stage_stream(execution_id, stage_id))
    begun: dict[int, _Begun] = {}
    found: list[tuple[tuple[int, int, int], Made]] = []
    after = 0
    while page := await ledger.read(stream, after_version=after, limit=_PAGE):
        for item in page:
            event = item.event
            after = event.stream_version
            frame_id = event.frame_id or 0
            if event.event_type == "frame.dispatched" and frame_id not in begun:
                begun[frame_id] = _begun(event.payload)
            elif event.event_type == "frame.committed" and (made := _made(event, begun[frame_id])) is not None:
                found.append((begun[frame_id].place, made))
    return [made for _, made in sorted(found, key=lambda one: one[0])]


class _Begun(NamedTuple):
    place: tuple[int, int, int]
    frame_index: int
    parent_frame_id: int | None


def _begun(said: Json) -> _Begun:
    index: int = said["frame_index"]
    place = (said["slot"], said.get("claim_index", index), said.get("claim_row", 0))
    return _Begun(place, index, said.get("parent_frame_id"))


def _made(event: Envelope, begun: _Begun) -> Made | None:
    frame_id = event.frame_id or 0
    if event.payload_ref is not None:
        return Made(event.payload_ref, frame_id)
    if "returned" not in event.payload:
        return None
    slot, _, first = begun.place
    maker = Maker(event.stage_id or 0, event.command_id or 0, frame_id, slot, begun.frame_index, begun.parent_frame_id)
    return Made(None, frame_id, Said(maker, first, msgspec.json.encode(event.payload["returned"])))
