"""One frame as the keeper of its stage knows it, and one decision about frames while it is being made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from noetl.data.frame.protocol import Frame, StagePlan
from noetl.kernel.event import Draft, Envelope, Json, PayloadRef, Ref

__all__ = ["Author", "FrameState", "Turn"]

_ENDS = ("frame.committed", "frame.failed")


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf the events of a stage are written."""

    organization_id: str
    principal: str
    producer: str


class FrameState(msgspec.Struct, kw_only=True, eq=False):
    """What has become of a frame so far. Frames that have ended keep their coordinates and what ended them."""

    slot: int
    index: int
    claim_index: int
    claim_row: int
    base_index: int
    row_count: int
    rows: PayloadRef | None = None
    inline: tuple[Json, ...] | None = None
    slice: Json | None = None
    cursor: Json = {}
    claim_id: str = ""
    parent_frame_id: int | None = None
    frame_id: int = 0
    """The id of the event that dispatched it first; 0 until that is written."""
    status: Literal["pending", "running", "ended"] = "pending"
    attempt: int = 0
    spent: int = 0
    """The attempts that are held against it."""
    worker: str = ""
    token: str = ""
    """What the holder of the current attempt shows; empty where nobody can hold it."""
    lease_end: int = 0
    is_renewed: bool = False
    terminal: int = 0
    """The event that has ended it."""

    @classmethod
    def of(cls, event: Envelope, *, is_cursor: bool) -> FrameState:
        """A frame as it was first dispatched."""
        said: Json = event.payload
        index: int = said["frame_index"]
        return cls(
            frame_id=event.frame_id or 0,
            slot=said["slot"],
            index=index,
            claim_index=said.get("claim_index", index),
            claim_row=said.get("claim_row", 0),
            base_index=said.get("base_index", 0),
            row_count=said.get("row_count", 0),
            rows=event.payload_ref if is_cursor else None,
            inline=tuple(said["inline"]) if "inline" in said else None,
            slice=said.get("slice"),
            cursor=said.get("cursor", {}),
            claim_id=said.get("claim_id", ""),
            parent_frame_id=said.get("parent_frame_id"),
        )

    @property
    def place(self) -> tuple[int, int, int]:
        """Where its rows stand in the order of the stage: slot, claim, row of the claim."""
        return self.slot, self.claim_index, self.claim_row

    def view(self, lease_until: str) -> Frame:
        """The frame as its slot gets it."""
        return Frame(
            frame_id=self.frame_id,
            slot=self.slot,
            index=self.index,
            attempt=self.attempt,
            row_count=self.row_count,
            base_index=self.base_index,
            rows=self.rows,
            inline=self.inline,
            slice=self.slice,
            parent_frame_id=self.parent_frame_id,
            claim_index=self.claim_index,
            claim_row=self.claim_row,
            lease_until=lease_until,
            token=self.token,
        )


class Turn:
    """What is decided together and written as one append. What it says of frames holds once it is `settled`."""

    def __init__(self, plan: StagePlan, author: Author, *, now: int, lease_until: str) -> None:
        """`now` is in microseconds of the clock that leases go by; `lease_until` is for people, by the wall's."""
        self.now = now
        self.lease_until = lease_until
        self.drafts: list[Draft] = []
        self.is_news = False
        """Something has changed for those who wait, though there may be nothing to write."""
        self._frames: list[FrameState | None] = []
        self._born: dict[FrameState, int] = {}
        self._plan = plan
        self._same: dict[str, Any] = {
            "tenant_id": plan.tenant,
            "organization_id": author.organization_id,
            "project_id": plan.project,
            "principal": author.principal,
            "producer": author.producer,
            "execution_id": plan.execution_id,
            "parent_execution_id": plan.parent_execution_id,
            "aggregate_type": "frame",
            "stage_id": plan.stage_id,
            "command_id": plan.command_id,
            "node_name": plan.step,
        }

    def say(
        self,
        event_type: str,
        frame: FrameState,
        status: str,
        *,
        payload: Json | None = None,
        payload_ref: PayloadRef | None = None,
        meta: Json | None = None,
    ) -> None:
        """Add an event about a frame. The first event of a new one is what it is called by."""
        frame_id: int | Ref = frame.frame_id
        if not frame_id:
            frame_id = Ref(self._born.setdefault(frame, len(self.drafts)))
        known = {"worker_id": frame.worker} if frame.worker else {}
        self.drafts.append(
            Draft(
                event_type=event_type,
                frame_id=frame_id,
                status=status,
                attempt=frame.attempt,
                payload=payload or {},
                payload_ref=payload_ref,
                meta=known if meta is None else {**known, **meta},
                **self._same,
            )
        )
        self._frames.append(frame)

    def begin(self, keeper: str, placement: Json) -> None:
        """Say that somebody keeps the stage from now on, and where. Whoever did so before finds out by this."""
        same = {**self._same, "aggregate_type": "stage"}
        payload: Json = {"keeper": keeper, "slots": self._plan.slots}
        if placement:
            payload["placement"] = placement
        self.drafts.append(Draft(event_type="stage.started", status="RUNNING", payload=payload, **same))
        self._frames.append(None)

    def place(self, facts: Json) -> None:
        """Say where the slots of the stage run."""
        same = {**self._same, "aggregate_type": "stage"}
        self.drafts.append(Draft(event_type="stage.started", status="RUNNING", payload=facts, **same))
        self._frames.append(None)

    def settle(self, events: Sequence[Envelope]) -> Iterable[FrameState]:
        """Give frames the ids that the ledger has stamped; the frames that the turn was about."""
        for frame, place in self._born.items():
            frame.frame_id = events[place].event_id
        for about, event in zip(self._frames, events, strict=True):
            if about is not None and about.status == "ended" and event.event_type in _ENDS:
                about.terminal = event.event_id
        return dict.fromkeys(frame for frame in self._frames if frame is not None)
