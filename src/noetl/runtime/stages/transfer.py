"""A transfer as a stage: its task reads the source once, loads a part for each frame, and shows all of them at the end.

Every one of these is a run of the task as any other is, with its fields rendered and its credentials resolved. What the
task is to do is offered to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.data.frame.given import Given
from noetl.data.frame.protocol import Frame, StageFault
from noetl.data.frame.running import Said
from noetl.data.frame.table import FrameTable
from noetl.data.stage.inputs import FILE_KEYS
from noetl.data.stage.pinning import Found
from noetl.data.transfer.tool import DO, Do
from noetl.engine.decide import Suspension
from noetl.engine.outcome import failure
from noetl.engine.pipeline import Ended
from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.names import ResultCoordinates
from noetl.playbook.document import Step
from noetl.runtime.stages.body import StageBody
from noetl.runtime.vault import Session
from noetl.runtime.worker import outer_names
from noetl.tools.loading import Part

__all__ = ["TransferFrame", "TransferStage", "part_number"]

_SHOWN = ("type", "url", "table", "database", "resource", *FILE_KEYS)


def part_number(claim_index: int, claim_row: int) -> int:
    """The number of a frame's rows among all parts: the same for every attempt, and in the order of the source."""
    return claim_index << 32 | claim_row


class TransferStage:
    """The transfer that one stage is."""

    def __init__(self, body: StageBody) -> None:
        self._body = body
        plan = body.plan
        place = ResultCoordinates(
            tenant=plan.tenant,
            project=plan.project,
            execution_id=plan.execution_id,
            step=plan.step,
            run=plan.epoch,
            attempt=1,
            task=body.step.tasks[0].name,
            visit=1,
        )
        self._key = place.effect_key()
        steps = body.work.playbook.steps.values()
        self._is_read = any(step.reduce is not None and step.reduce.source == plan.step for step in steps)

    async def open(self) -> Found:
        """Read the source, and make the target ready. Raises StageFault."""
        return msgspec.convert(await self._run(Do(what="open", effect_key=self._key), _whole(self._body.step)), Found)

    async def finish(self, table: FrameTable, is_good: bool) -> Json:
        """Show all parts, or leave nothing behind. Raises StageFault."""
        if not is_good:
            await self._run(Do(what="drop", effect_key=self._key), _without_source(self._body.step))
            return {}
        counted = table.tally.parts or {}
        parts = [Part(part_number(claim, row), rows) for (_, claim, row), rows in sorted(counted.items())]
        do = Do(what="close", effect_key=self._key, parts=tuple(parts))
        said: Json = await self._run(do, _without_rows(self._body.step))
        return said

    async def _run(self, do: Do, step: Step) -> Any:
        try:
            ended = await self.run(do, step, await self._body.session())
        except NoetlError as problem:
            raise StageFault(failure("SECRET_UNAVAILABLE", str(problem), kind="auth")) from None
        if ended.error is not None:
            raise StageFault(ended.error)
        return ended.last

    async def run(self, do: Do, step: Step, session: Session | None, frame: Any = None, took: Any = None) -> Ended:
        """Run the task for one thing that is to be done."""
        body = self._body
        work = msgspec.structs.replace(body.work, step=step, frame=frame, offered={DO: do})
        names = outer_names(body.work) | ({} if session is None else session.names)
        script = body.worker.script(work.playbook, step)
        ended = await body.worker.run_pipeline(work, script, names, body.host_for(session), session, took)
        assert not isinstance(ended, Suspension), "a transfer calls nobody"
        return ended

    def load(self, frame: Frame, given: Given) -> Do:
        """What is to be done for a frame."""
        first = int((frame.slice or {}).get("first", 0)) + frame.claim_row
        number = part_number(frame.claim_index, frame.claim_row)
        return Do(what="load", effect_key=self._key, part=number, first=first, given=given, keep=self._is_read)

    @property
    def loading(self) -> Step:
        """The step as it is for frames, which do not read the source."""
        return _without_source(self._body.step)


class TransferFrame:
    """The body of one frame."""

    def __init__(self, stage: TransferStage, frame: Frame, given: Given, session: Session | None) -> None:
        self.timings: dict[str, float] = {}
        self._stage = stage
        self._frame = frame
        self._given = given
        self._session = session

    async def run_row(self, index: int) -> Said:
        """Rows are loaded together, never one by one."""
        raise AssertionError("a transfer loads frames")

    async def run_whole(self) -> Said:
        """Load the rows. Raises Unavailable for a target that may take them later: the frame is run again."""
        do = self._stage.load(self._frame, self._given)
        ended = await self._stage.run(do, self._stage.loading, self._session, took=self._took)
        error = self.masked(ended.error)
        if error is not None and error.get("retryable"):
            raise Unavailable(str(error.get("message", "")))
        return Said(result=None if error is not None else ended.last, error=error)

    def masked(self, value: Any) -> Any:
        """A value without the secrets that the stage has seen."""
        return value if self._session is None else self._session.redactor.value(value)

    def _took(self, task: str, seconds: float) -> None:
        self.timings[task] = self.timings.get(task, 0.0) + seconds


def _whole(step: Step) -> Step:
    """The barrier keeps no outcome of a stage's task: what is to be done once is kept by the target itself."""
    (task,) = step.tasks
    return msgspec.structs.replace(step, tasks=(msgspec.structs.replace(task, side_effecting=False),))


def _without_source(step: Step) -> Step:
    (task,) = _whole(step).tasks
    fields = {name: value for name, value in task.fields.items() if name != "source"}
    return msgspec.structs.replace(step, tasks=(msgspec.structs.replace(task, fields=fields),))


def _without_rows(step: Step) -> Step:
    """The source only as far as it is named in the result; its rows need not be fetched for that."""
    (task,) = _whole(step).tasks
    source = task.fields.get("source")
    if not isinstance(source, Mapping):
        return _whole(step)
    named = {name: source[name] for name in _SHOWN if name in source}
    changed = msgspec.structs.replace(task, fields={**task.fields, "source": named})
    return msgspec.structs.replace(step, tasks=(changed,))
