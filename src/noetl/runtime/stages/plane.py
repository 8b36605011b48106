"""The control plane of a stage for slots of the same process, and for whoever speaks for others.

A slot never learns from an error that its stage is over: claims are drained, frames are lost, and it can stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from noetl.data.frame.protocol import Claimed, Frame, FrameOutcome, Opening, SlotReport
from noetl.data.frame.state import Turn
from noetl.data.frame.table import FrameTable, Verdict
from noetl.errors import InvalidInput, LeaseLost
from noetl.kernel import canonical
from noetl.kernel.event import Draft, Json
from noetl.runtime.stages.desk import Answer, Desk

__all__ = ["KeptPlane", "StageServices"]

_PATIENCE = 20.0
"""How long a claim waits for frames that may come back before its slot is told to ask again."""
_AGAIN = 0.05
_MOST_ERRORS = 10
_MOST_MESSAGE = 2048
_MOST_ERROR = 4096
_MOST_RETURNED = 32 << 10


class StageServices(msgspec.Struct, frozen=True, kw_only=True):
    """What a plane needs of the process that it stands in."""

    tell: Callable[[Sequence[Draft]], Awaitable[None]]
    """Writes to the execution's telemetry; what cannot be told is no reason to stop."""
    recorded: Callable[[Json], Awaitable[Json]]
    """Assignments as an event can have them: large values stored, and referred to."""
    credential: Callable[[str], Awaitable[Any]]
    clean: Callable[[Any], Any] = lambda value: value
    """Takes secrets out of what slots say."""


class KeptPlane:
    """The FramePlane of the stage that this process keeps."""

    def __init__(self, desk: Desk, services: StageServices) -> None:
        self._desk = desk
        self._services = services
        self.place: Json = {}
        """What the host has told of where slots run."""

    async def claim(self, slot: int, worker: str, *, most: int = 1) -> Claimed:
        """Frames to run: those that were abandoned first, then slices of the input that nobody has had."""
        self._check_slot(slot)

        def decide(table: FrameTable, turn: Turn) -> Answer[Claimed] | None:
            grant = table.claim(turn, slot, worker, max(1, most))
            if grant.is_early:
                return None
            return lambda: Claimed(
                frames=tuple(frame.view(turn.lease_until) for frame in grant.frames),
                drained=grant.drained,
                base_index=grant.base_index,
            )

        try:
            return await self._desk.ask(decide, patience=_PATIENCE) or Claimed(wait=_AGAIN)
        except LeaseLost:
            return Claimed(drained=True)

    async def open(self, worker: str, openings: tuple[Opening, ...]) -> tuple[Frame, ...]:
        """Record frames of a cursor whose rows were just claimed; nothing if nobody wants them any more."""
        for opening in openings:
            self._check_slot(opening.slot)

        def decide(table: FrameTable, turn: Turn) -> Answer[tuple[Frame, ...]]:
            opened = table.open(turn, worker, openings)
            return lambda: tuple(frame.view(turn.lease_until) for frame in opened)

        try:
            return await self._desk.ask(decide) or ()
        except LeaseLost:
            return ()

    async def heartbeat(self, worker: str, frames: tuple[Frame, ...]) -> dict[int, str]:
        """Renew leases; the new ends by frame id. A frame that is missing in the answer is lost, or just ending."""
        if self._desk.lost.done():
            return {}
        turn = self._desk.turn()
        kept, first = self._desk.table.renew(frames, turn.now)
        for frame in first:
            turn.say("frame.heartbeat", frame, "RUNNING", payload={"lease_until": turn.lease_until})
        if turn.drafts:
            await self._services.tell(turn.drafts)
        return {frame.frame_id: turn.lease_until for frame in kept}

    async def commit(self, worker: str, outcomes: tuple[FrameOutcome, ...]) -> dict[int, Json]:
        """Write down what came of frames, each for itself."""
        if len(outcomes) == 1:
            return {outcomes[0].frame_id: await self._commit(outcomes[0])}
        said = await asyncio.gather(*(self._commit(outcome) for outcome in outcomes), return_exceptions=True)
        found: dict[int, Json] = {}
        for outcome, answer in zip(outcomes, said, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            found[outcome.frame_id] = answer
        return found

    async def _commit(self, outcome: FrameOutcome) -> Json:
        outcome = self._clean(_bounded(outcome))
        recorded = await self._services.recorded(outcome.set) if outcome.set else None

        def decide(table: FrameTable, turn: Turn) -> Answer[Json]:
            verdict = table.commit(turn, outcome, recorded)
            return lambda: _said(verdict, turn)

        try:
            return await self._desk.ask(decide, can_wait=True) or {}
        except LeaseLost:
            ended_by = self._desk.table.ended_by(outcome.frame_id)
            return {"terminal": ended_by} if ended_by else {"lost": True}

    def _clean(self, outcome: FrameOutcome) -> FrameOutcome:
        if not (outcome.set or outcome.errors or outcome.error or outcome.returned):
            return outcome
        clean = self._services.clean
        if outcome.returned is not None:
            returned = msgspec.structs.replace(outcome.returned, results=clean(outcome.returned.results))
            outcome = msgspec.structs.replace(outcome, returned=returned)
        said: dict[str, Any] = {"set": clean(outcome.set), "errors": tuple(clean(list(outcome.errors)))}
        return msgspec.structs.replace(outcome, error=clean(outcome.error), **said)

    async def finish(self, worker: str, report: SlotReport) -> None:
        """The slot has drained."""
        self._check_slot(report.slot)

        def decide(table: FrameTable, turn: Turn) -> Answer[None]:
            table.finish(turn, worker, report)
            return lambda: None

        try:
            await self._desk.ask(decide)
        except LeaseLost:
            return

    async def credential(self, alias: str) -> Any:
        """The data of a credential that the stage's authority allows. Raises Forbidden, NotFound."""
        return await self._services.credential(alias)

    async def placed(self, facts: Json) -> None:
        """Tell where the slots run, in the telemetry of the execution."""
        self.place = facts
        turn = self._desk.turn()
        turn.place(facts)
        await self._services.tell(turn.drafts)

    def _check_slot(self, slot: int) -> None:
        slots = self._desk.plan.slots
        if not 0 <= slot < slots:
            raise InvalidInput(f"stage {self._desk.plan.stage_id} has slots 0 to {slots - 1}, not {slot}")


def _said(verdict: Verdict, turn: Turn) -> Json:
    if verdict.ended_by:
        return {"terminal": verdict.ended_by}
    if verdict.frame is None:
        return {"lost": True}
    if verdict.is_late:
        return {"terminal": verdict.frame.terminal}
    if verdict.frame.status != "ended":
        return {"again": True}
    said: Json = {"event_id": verdict.frame.terminal}
    if verdict.rest is not None:
        said["frame"] = msgspec.to_builtins(verdict.rest.view(turn.lease_until))
    return said


def _bounded(outcome: FrameOutcome) -> FrameOutcome:
    """The outcome with errors that have room in an event. Raises InvalidInput for what cannot be, or has no room."""
    if outcome.rows < 0 or any(count < 0 for count in outcome.outcomes.values()):
        raise InvalidInput(f"frame {outcome.frame_id}: fewer than no rows cannot have been run")
    if outcome.returned is not None and canonical.length(msgspec.to_builtins(outcome.returned)) > _MOST_RETURNED:
        raise InvalidInput(
            f"frame {outcome.frame_id}: what its rows have returned has no room in an event",
            hint="store it, and commit the frame with a reference to it as `output`",
        )
    if not outcome.errors and outcome.error is None:
        return outcome
    errors = tuple({**said, "error": _short(said.get("error"))} for said in outcome.errors[:_MOST_ERRORS])
    error = None if outcome.error is None else _short(outcome.error)
    return msgspec.structs.replace(outcome, errors=errors, error=error)


def _short(error: Any) -> Json:
    """An error without what would make it a novel: details of it are in the log of the worker."""
    said = error if isinstance(error, dict) else {"message": str(error)}
    message = str(said.get("message", ""))
    if len(message) > _MOST_MESSAGE:
        said = {**said, "message": f"{message[:_MOST_MESSAGE]}... ({len(message)} characters)"}
    try:
        if len(canonical.encode(said)) <= _MOST_ERROR:
            return said
    except canonical.NotCanonical:
        pass
    kept = {name: said[name] for name in ("kind", "code", "retryable") if isinstance(said.get(name), str | bool)}
    return {**kept, "message": message[:_MOST_MESSAGE]}
