"""What the events of a frame say: all that a later keeper, or a person, needs to run it again."""

from __future__ import annotations

import msgspec

from noetl.data.frame.protocol import FrameOutcome
from noetl.data.frame.state import FrameState
from noetl.errors import InvalidInput
from noetl.kernel.event import Json

__all__ = ["check_rows", "committed", "dispatched", "exhausted", "told"]


def dispatched(frame: FrameState, lease_until: str | None, frames: int | None = None) -> Json:
    """Which rows it is, until when it is leased, and how many frames there are where that is known."""
    said: Json = {
        "slot": frame.slot,
        "frame_index": frame.index,
        "row_count": frame.row_count,
        "base_index": frame.base_index,
    }
    if frames is not None:
        said["frames"] = frames
    if lease_until is not None:
        said["lease_until"] = lease_until
    if frame.inline is not None:
        said["inline"] = list(frame.inline)
    if frame.slice is not None:
        said["slice"] = frame.slice
    if frame.claim_id:
        said["claim_id"] = frame.claim_id
    if frame.cursor:
        said["cursor"] = frame.cursor
    if frame.parent_frame_id is not None:
        said["parent_frame_id"] = frame.parent_frame_id
    if frame.claim_row:  # it is what was left of another frame
        said |= {"claim_index": frame.claim_index, "claim_row": frame.claim_row}
    return said


def committed(outcome: FrameOutcome, assigned: Json) -> Json:
    """What came of its rows."""
    said: Json = {"rows": outcome.rows, "outcomes": outcome.outcomes}
    if outcome.timings:
        said["timings_ms"] = {task: round(seconds * 1000, 3) for task, seconds in outcome.timings.items()}
    if outcome.output is not None and outcome.output.schema_digest is not None:
        said["schema_digest"] = outcome.output.schema_digest
    if outcome.returned is not None:
        said["returned"] = msgspec.to_builtins(outcome.returned)
    if outcome.adopted:
        said["adopted"] = outcome.adopted
    if assigned:
        said["set"] = assigned
    if outcome.errors:
        said["errors"] = list(outcome.errors)
    return said


def told(said: Json) -> int:
    """How many bytes of what the rows of a frame have returned stand in the event that says this of it."""
    size: int = said.get("returned", {}).get("bytes", 0)
    return size


def check_rows(frame: FrameState, outcome: FrameOutcome) -> None:
    """See that every row of the frame is accounted for. Raises InvalidInput."""
    left = outcome.rest.row_count if outcome.rest is not None else 0
    if frame.row_count and outcome.rows + left != frame.row_count:
        raise InvalidInput(
            f"frame {frame.frame_id} has {frame.row_count} rows, and {outcome.rows} run with {left} left do not "
            "make that",
            hint="count every row of the frame: ok, error, break or skipped",
        )


def exhausted(frame: FrameState, reason: str) -> Json:
    """The error of a frame that has no attempt left."""
    why = {
        "lapsed": "nothing was heard of the worker that ran it",
        "replaced": "the worker that ran it was replaced",
        "left": "the worker that ran it has left",
    }.get(reason, "the process that kept its stage was lost")
    return {
        "kind": "unknown",
        "code": "FRAME_ATTEMPTS",
        "message": f"frame {frame.index} of slot {frame.slot} was begun {frame.attempt} times and never ended: {why}",
        "retryable": False,
    }
