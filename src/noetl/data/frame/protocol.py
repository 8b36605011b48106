"""What a slot and the keeper of its stage say to each other (the frame protocol).

A slot takes frames, runs their body, makes the output durable and only then commits. Whoever keeps the stage writes
every transition down; a slot that has lost its frame is told so and drops its work. All of it is plain data, so that
it crosses a socket to another process or another machine unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from noetl.errors import NoetlError
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.names import Home

__all__ = [
    "Claimed",
    "FailureMode",
    "Frame",
    "FrameLost",
    "FrameOutcome",
    "FramePlane",
    "FrameTerminal",
    "Opening",
    "Pinned",
    "Policy",
    "Returned",
    "Slice",
    "SlotReport",
    "StageFault",
    "StageKind",
    "StagePlan",
]

StageKind = Literal["loop", "fanout", "reduce", "transfer"]
FailureMode = Literal["fail_fast", "fail_at_end", "best_effort"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a frame, rendered and checked (DSL 4.6)."""

    max_rows: int = 1
    max_seconds: float = 30.0
    max_bytes: int = 64 << 20
    lease_seconds: float = 120.0
    heartbeat_seconds: float = 30.0
    row_concurrency: int = 1
    process: Literal["row", "frame"] = "row"
    max_attempts: int = 3
    retry_mode: Literal["whole_frame"] = "whole_frame"
    verify_ipc: bool = False


class StagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a slot has to know of its stage; nothing in it has to be looked up, and nothing is secret."""

    tenant: str
    project: str
    execution_id: int
    stage_id: int
    command_id: int
    step: str
    epoch: int
    kind: StageKind
    slots: int
    policy: Policy
    failure: FailureMode = "best_effort"
    """What a failed row (or frame, in frame mode) means for the rest (DSL 4.3)."""
    home: Home
    document: str
    """The text of the playbook."""
    file: str
    entry: str
    context: Json = {}
    """The slice of the execution's context that the body's templates and the claim name."""
    source: Json = {}
    """`{"cursor": {...}}`, or `{"input": {...}}`: what a fan-out runs over, pinned; `{"groups": {...}}` of a reduce."""
    parent_stage_id: int | None = None
    parent_execution_id: int | None = None
    root_execution_id: int | None = None
    catalog_id: str | None = None
    server_url: str | None = None
    depth: int = 0
    authority: Json = {}
    env: dict[str, str] = {}
    trace: dict[str, str] = {}
    """The place in a trace that its rows are below."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A window of rows in the hands of a slot. The same rows on every attempt.

    `slot` and `index` are its coordinates, for good: the slot that claimed its rows and its number there, whichever
    slot runs it. Frames of a fan-out or reduce belong to no slot: they are slot 0 and the number of their slice.
    """

    frame_id: int
    slot: int
    index: int
    attempt: int = 1
    row_count: int = 0
    base_index: int = 0
    """The number of its first row within the slot."""
    rows: PayloadRef | None = None
    """The rows as they were claimed, of a cursor, unless they are `inline`."""
    inline: tuple[Json, ...] | None = None
    """The same where they are few: then they stand in the event that dispatches the frame."""
    slice: Json | None = None
    """The part of the pinned input, of a fan-out, or the group, of a reduce."""
    parent_frame_id: int | None = None
    claim_index: int = 0
    """The index that its rows have in their coordinates: its own, or for the rest of a claim that of the claim."""
    claim_row: int = 0
    """The number of its first row in that claim: 0, or for the rest of a claim how many rows came before."""
    lease_until: str = ""
    token: str = ""
    """Says whose attempt this is; a slot that shows an older one has lost the frame."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """A cursor frame to be recorded: its rows are durable, or are so with the record, and its body has not begun.

    The keeper numbers it. As the `rest` of an outcome it is what is left of a frame that reached a soft limit: the
    rows (or, in a fan-out, the part of the slice) that were not run.
    """

    slot: int
    rows: PayloadRef | None = None
    inline: tuple[Json, ...] | None = None
    slice: Json | None = None
    row_count: int
    base_index: int = 0
    cursor: Json = {}
    claim_id: str = ""
    """Tells this claim from every other one, so that it becomes one frame however often it is asked for. Rows may
    look alike; and a slot that got no answer asks again, perhaps another keeper.
    """

    @property
    def has_rows(self) -> bool:
        """Whether there is something to be recorded."""
        if self.inline is not None:
            return self.row_count == len(self.inline) > 0
        return self.rows is not None and self.row_count > 0


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a pinned input, small enough for an event: where it is, never what is in it."""

    part: Json
    rows: int = 0
    parent_frame_id: int | None = None
    """The frame of an earlier stage that has made all of its rows, if it is one; of several, `part` names them."""


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """An input that will be the same for every attempt: what it is, and the slices that follow from that alone."""

    ref: PayloadRef
    """What was pinned, durable. Every frame's first event refers to it, so a later keeper slices the same."""
    slices: Sequence[Slice]


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot gets. Without frames: `drained` when there will be none; else try again after `wait` seconds, or,
    of a cursor and without a wait, claim rows and open a frame with them.
    """

    frames: tuple[Frame, ...] = ()
    drained: bool = False
    wait: float = 0.0
    base_index: int = 0
    """How many rows the slot has claimed so far, also before a change of keeper."""


class Returned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the rows of a frame have returned, where that is little: it is durable with the event that says it."""

    results: list[Any]
    """Each different one, in the order of the first rows that have returned them."""
    columns: list[str] | None = None
    """The names in them, as rows have them one after the other; None where that is how they are sorted."""
    bytes: int
    """About how many they are as JSON."""
    which: list[int] | None = None
    """For each row the number of its result, where rows have returned the same."""
    at: list[int] | None = None
    """The places of these rows in the frame, where others have failed."""


class FrameOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a frame. Its output is durable by now, or is so with the commit."""

    frame_id: int
    token: str
    rows: int
    outcomes: dict[str, int] = {}
    """Rows by outcome: ok, error, break, skipped."""
    output: PayloadRef | None = None
    """Where it is stored what the rows have returned, unless it is `returned`."""
    returned: Returned | None = None
    timings: dict[str, float] = {}
    """Seconds by task."""
    set: Json = {}
    """Assignments to ctx, in the order of rows."""
    errors: tuple[Json, ...] = ()
    """The first few rows that failed: row index, error."""
    error: Json | None = None
    """Why the whole frame has failed; None for one that is committed, also if some of its rows failed."""
    again: bool = False
    """With an error: not its rows have failed but what ran them, so it is run again while it has attempts left."""
    rest: Opening | None = None
    """The rows that were not run because of a soft limit. They become a frame in the same append, or nothing does."""
    locality: Json = {}
    adopted: int = 0
    """The attempt that has run it, where that was an earlier one: its outcome was durable, and nothing was run now."""

    @property
    def told(self) -> int:
        """How many bytes of what its rows have returned stand in the event that commits it."""
        return 0 if self.returned is None else self.returned.bytes


class SlotReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot has done when it has drained (DSL 4.6: an entry of the loop's results)."""

    slot: int
    processed: int = 0
    failed: int = 0
    breaks: int = 0
    frames: int = 0
    metrics: Json = {}
    error: Json | None = None
    """Why it could not go on: its claim kept failing."""


class StageFault(NoetlError):
    """A stage that cannot begin, or cannot end; `error` is what is said of it."""

    def __init__(self, error: Json) -> None:
        super().__init__(str(error.get("message", "the stage failed")))
        self.error = error


class FrameLost(NoetlError):
    """The lease has lapsed and the frame was given to somebody else; drop the work."""


class FrameTerminal(NoetlError):
    """`frame_already_terminal`: the frame has ended; drop the work. `event_id` is the event that ended it."""

    def __init__(self, frame_id: int, event_id: int) -> None:
        super().__init__(f"frame {frame_id} has ended already, by event {event_id}", hint="drop the work")
        self.frame_id = frame_id
        self.event_id = event_id


class FramePlane(Protocol):
    """The control plane of one stage, as a slot sees it: a direct call or HTTP with the stage's token."""

    async def claim(self, slot: int, worker: str, *, most: int = 1) -> Claimed:
        """Frames to run: those that were abandoned first, then slices of the input that nobody has had."""
        ...

    async def open(self, worker: str, openings: tuple[Opening, ...]) -> tuple[Frame, ...]:
        """Record frames of a cursor whose rows were just claimed."""
        ...

    async def heartbeat(self, worker: str, frames: tuple[Frame, ...]) -> dict[int, str]:
        """Renew leases; the new ends by frame id. A frame that is missing in the answer is lost."""
        ...

    async def commit(self, worker: str, outcomes: tuple[FrameOutcome, ...]) -> dict[int, Json]:
        """Write down what came of frames; for each frame id `{"event_id": ..}` or `{"terminal": event_id}` or
        `{"lost": true}`. With a `rest` also `{"frame": ..}`, the new frame as plain data, in the hands of the slot.
        """
        ...

    async def finish(self, worker: str, report: SlotReport) -> None:
        """The slot has drained."""
        ...

    async def credential(self, alias: str) -> Any:
        """The data of a credential that the stage's authority allows. Raises Forbidden, NotFound."""
        ...
