"""Running one frame: its body once for each row or once for all, within the frame's bounds.

A row that fails is counted and reported, and the others go on. Past a soft limit no further row is begun, and the
rest of the frame is handed back to become one of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from noetl.data.frame.given import Given
from noetl.data.frame.output import Maker, output_of_frame, output_of_rows
from noetl.data.frame.policy import Allowance, rows_within
from noetl.data.frame.protocol import Frame, FrameOutcome, Opening, StagePlan
from noetl.data.frame.told import Told
from noetl.engine.control import add_assignments
from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.kernel.lazy import LazyMapping, plain
from noetl.payloads.blocking import in_thread
from noetl.payloads.tables import TableValue

__all__ = ["Body", "Ran", "Said", "run_frame"]

_MOST_ERRORS = 10
_ALONE_SECONDS = 0.01
"""How long rows that wait for nothing may keep others from their turn: heartbeats, and the other slots."""
_MANY = 1000
_DIED = "PY_WorkerDied"
"""The code of a task whose process was lost: nobody knows yet whether that was the row's fault."""
_MOST_DATA = 512
_MOST_TRACEBACK = 1500


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a body has come to, for a row or for the whole frame."""

    result: Any = None
    error: Json | None = None
    traceback: str = ""
    """Of the user's own code, where that has raised."""
    is_break: bool = False
    assigned: Json = {}


class Body(Protocol):
    """The tasks of a step, made ready for the rows of one frame."""

    timings: dict[str, float]
    """Seconds by task, of all rows together."""

    async def run_row(self, index: int) -> Said:
        """Run for the row, or the group, with this place in the frame."""
        ...

    async def run_whole(self) -> Said:
        """Run once for all rows."""
        ...

    def masked(self, value: Any) -> Any:
        """A value without secrets, as it may stand in an event."""
        ...


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A frame that was run: its outcome, and the table that is to be stored before it is committed, if there is one."""

    outcome: FrameOutcome
    output: Any = None
    is_kept: bool = False
    """Whether it was made durable by an earlier attempt, output and all."""


async def run_frame(plan: StagePlan, frame: Frame, given: Given, body: Body) -> Ran:
    """Run a frame's body. Raises InvalidInput if what it was given, or returns, is no table."""
    if plan.policy.process == "frame" and given.groups is None:
        return await _run_whole(plan, frame, given, body)
    is_large = given.count > _MANY  # what takes long must not keep others, and heartbeats, from their turn
    if is_large and given.groups is None:
        await in_thread(given.decode)
    rows = _Rows(plan, frame, given, body)
    await rows.run()
    return await in_thread(rows.ran) if is_large else rows.ran()


# --- Frame mode ---------------------------------------------------------------------------------------------


async def _run_whole(plan: StagePlan, frame: Frame, given: Given, body: Body) -> Ran:
    said = await body.run_whole()
    count = given.count
    outcome = FrameOutcome(frame_id=frame.frame_id, token=frame.token, rows=count, timings=body.timings)
    if said.error is not None:
        error = _frame_error(said, frame, given, body)
        return Ran(outcome=msgspec.structs.replace(outcome, error=error, again=_is_lost(plan, frame, said)))
    parents = None if given.parents is None else given.parents.to_pylist()
    breaks = 1 if said.is_break and count else 0
    outcomes = {"ok": count - breaks, "break": breaks}
    return Ran(
        outcome=msgspec.structs.replace(
            outcome,
            outcomes={name: number for name, number in outcomes.items() if number},
            set=said.assigned,
            rest=rest_of(frame, count),
        ),
        output=await _output_of(plan, frame, said.result, parents, is_large=count > _MANY),
    )


async def _output_of(plan: StagePlan, frame: Frame, result: Any, parents: Any, *, is_large: bool) -> Any:
    """The output of a frame. What is small is made at once: a thread would take longer to begin."""
    if not is_large and isinstance(result, TableValue) and result.native and result.arrow.num_rows <= _MANY:
        return output_of_frame(plan, frame, result, parents)
    return await in_thread(output_of_frame, plan, frame, result, parents)


def _is_lost(plan: StagePlan, frame: Frame, said: Said) -> bool:
    """Whether what ran a body was lost and the frame is to be run again. In the last attempt it is the body's fault."""
    is_died = said.error is not None and said.error.get("code") == _DIED
    return is_died and frame.attempt < plan.policy.max_attempts


def _frame_error(said: Said, frame: Frame, given: Given, body: Body) -> Json:
    """The error of a whole frame; where the code has said which row it was, with that row."""
    error = dict(said.error or {})
    row = error.get("row")
    if isinstance(row, int) and 0 <= row < given.count:
        error["row_index"] = frame.claim_row + row
        error["data"] = _shown(body.masked(given.rows[row]))
    if said.traceback:
        error["traceback"] = body.masked(said.traceback)[-_MOST_TRACEBACK:]
    return error


def whole_part(plan: StagePlan, given: Given) -> Given:
    """What of a frame goes into one call of a body that takes it whole."""
    if given.is_below(plan.policy.max_bytes):
        return given
    return given.first(rows_within(plan.policy, given.count, given.size))


def rest_of(frame: Frame, done: int) -> Opening | None:
    """The rows of a frame that were not run. They lie where they were: in the claim, or in the slice."""
    if not frame.row_count or done >= frame.row_count:
        return None
    return Opening(
        slot=frame.slot, rows=frame.rows, inline=frame.inline, slice=frame.slice, row_count=frame.row_count - done
    )


# --- Row mode -----------------------------------------------------------------------------------------------


class _Rows:
    """The rows of a frame on their way: begun in order, as many at once as the policy says."""

    def __init__(self, plan: StagePlan, frame: Frame, given: Given, body: Body) -> None:
        self._plan = plan
        self._frame = frame
        self._given = given
        self._body = body
        self._allowance = Allowance(plan.policy)
        self._count = given.count
        self._row_bytes = given.size // max(1, self._count)
        self._told = Told() if plan.kind == "loop" else None
        """Results that may stand in the event of the frame: of a cursor, whose outputs nobody lists."""
        self._said: list[Said | None] = []
        """What came of the rows that were begun, in their order."""
        self._is_broken = False
        self._lost: int | None = None
        """The row whose process was lost, if one was."""
        self._since = time.monotonic()

    async def run(self) -> None:
        """Run rows until all are done, or no further one is to be begun."""
        width = min(self._plan.policy.row_concurrency, self._count)
        if width <= 1:
            await self._run_many()
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(self._run_many())

    async def _run_many(self) -> None:
        while self._may_begin():
            await self._run_next()
            if time.monotonic() - self._since > _ALONE_SECONDS:
                await asyncio.sleep(0)
                self._since = time.monotonic()

    def _may_begin(self) -> bool:
        begun = len(self._said)
        if begun >= self._count or self._is_broken or self._lost is not None:
            return False
        return not begun or not self._allowance.is_used_up

    async def _run_next(self) -> None:
        place = len(self._said)
        self._said.append(None)
        said = await self._body.run_row(place)
        if type(said.result) is not dict and isinstance(said.result, LazyMapping):
            said = _unfolded(said)
        self._said[place] = said
        if said.error is not None and _is_lost(self._plan, self._frame, said):
            self._lost = place
        size = canonical.length(said.result) if self._told is None else self._told.add(place, said.result)
        self._allowance.take(self._row_bytes + size)
        # In a collection a break ends its own row; in a cursor it ends the slot, and with it the frame.
        self._is_broken |= said.is_break and self._plan.kind == "loop"

    def ran(self) -> Ran:
        """What the rows have come to together."""
        frame, done = self._frame, len(self._said)
        if self._lost is not None:
            return Ran(outcome=self._again(self._lost))
        skipped = self._count - done if self._is_broken else 0
        said = [one for one in self._said if one is not None]
        outcomes = {"ok": 0, "error": 0, "break": 0, "skipped": skipped}
        assigned: Json = {}
        for one in said:
            outcomes["error" if one.error is not None else "break" if one.is_break else "ok"] += 1
            if one.assigned:
                assigned = add_assignments(assigned, one.assigned)
        outcome = FrameOutcome(
            frame_id=frame.frame_id,
            token=frame.token,
            rows=done + skipped,
            outcomes={name: count for name, count in outcomes.items() if count},
            timings=self._body.timings,
            set=assigned,
            errors=self._errors(said),
            rest=rest_of(frame, done + skipped),
        )
        good = [place for place, one in enumerate(said) if one.error is None]
        returned = None if self._told is None else self._told.returned(good, len(said))
        if returned is not None:
            return Ran(outcome=msgspec.structs.replace(outcome, returned=returned))
        return Ran(outcome=outcome, output=self._output(said, good))

    def _again(self, place: int) -> FrameOutcome:
        """The frame is to be run again: the process of a row was lost."""
        said, frame = self._said[place], self._frame
        assert said is not None
        about = self._error(place, said)
        error: Json = {**about.pop("error"), **{name: about[name] for name in ("row_index", "data")}}
        return FrameOutcome(frame_id=frame.frame_id, token=frame.token, rows=frame.row_count, error=error, again=True)

    def _errors(self, said: Sequence[Said]) -> tuple[Json, ...]:
        failed = [(place, one) for place, one in enumerate(said) if one.error is not None][:_MOST_ERRORS]
        return tuple(self._error(place, one) for place, one in failed)

    def _error(self, place: int, said: Said) -> Json:
        groups = self._given.groups
        data = self._given.rows[place] if groups is None else groups[place].key
        error: Json = {
            "row": place,
            "row_index": self._frame.claim_row + place,
            "error": said.error,
            "data": _shown(self._body.masked(data)),
        }
        if said.traceback:
            error["traceback"] = self._body.masked(said.traceback)[-_MOST_TRACEBACK:]
        return error

    def _output(self, said: Sequence[Said], good: Sequence[int]) -> Any:
        if not good:
            return None
        parents = None
        if self._given.parents is not None:
            every = self._given.parents.to_pylist()
            parents = [every[place] for place in good]
        first = self._frame.claim_row
        results, numbers = [said[place].result for place in good], [first + place for place in good]
        return output_of_rows(Maker.of(self._plan, self._frame), results, numbers, parents)


def _unfolded(said: Said) -> Said:
    """A row that has returned a table: the column of a row holds JSON, and not more of it than is reasonable."""
    try:
        return msgspec.structs.replace(said, result=plain(said.result))
    except InvalidInput as problem:
        error = {"kind": "schema", "code": "RESULT_TOO_LARGE", "message": str(problem), "retryable": False}
        return msgspec.structs.replace(said, result=None, error=error)


def _shown(data: Any) -> Any:
    """A row as an event shows it: whole if it is small, else the beginning of its JSON."""
    encoded = canonical.encode(plain(data))
    return data if len(encoded) <= _MOST_DATA else encoded[:_MOST_DATA].decode(errors="ignore") + "..."
