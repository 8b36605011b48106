"""The body of a stage: a step's tasks, run for rows and frames by the interpreter that runs any other command.

What is the same for all rows is made once: the document is parsed and the step found for the stage, the names from
outside are put together for the frame. A row adds its own names, and its place in the coordinates of effects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noetl.data.frame.given import Given, Group
from noetl.data.frame.protocol import Frame, StagePlan
from noetl.data.frame.running import Said
from noetl.engine.decide import Suspension
from noetl.engine.frames import FrameNames, Window, group_names
from noetl.kernel.event import Json
from noetl.kernel.names import FrameCoordinates, ResultCoordinates
from noetl.kernel.time import format_time
from noetl.payloads.tables import Rows, TableValue
from noetl.playbook import templates
from noetl.playbook.templates import Host
from noetl.runtime.stages.documents import playbook_of
from noetl.runtime.vault import Session
from noetl.runtime.worker import Work, Worker, all_names, outer_names, with_workbook
from noetl.tools.authority import Authority

__all__ = ["FrameBody", "StageBody"]


class StageBody:
    """The tasks of one stage's step, ready to be run for any of its frames."""

    def __init__(self, worker: Worker, plan: StagePlan) -> None:
        playbook = playbook_of(plan.document, plan.file)
        self.plan = plan
        self.policy: Json = msgspec.to_builtins(plan.policy)
        self.worker = worker
        self.step = with_workbook(playbook, playbook.steps[plan.step])
        self.script = worker.script(playbook, self.step)
        self.host = Host(now=lambda: format_time(worker.clock.now()))
        self.work = Work(
            tenant=plan.tenant,
            project=plan.project,
            execution_id=plan.execution_id,
            parent_execution_id=plan.parent_execution_id,
            command_id=plan.command_id,
            playbook=playbook,
            step=playbook.steps[plan.step],
            run=plan.epoch,
            context=plan.context,
            root_execution_id=plan.root_execution_id,
            catalog_id=plan.catalog_id,
            server_url=plan.server_url,
            document=hashlib.sha256(plan.document.encode()).hexdigest(),
            authority=Authority.read(plan.authority),
            env=plan.env or worker.env,
            depth=plan.depth,
            home=plan.home,
            trace=plan.trace,
        )

    async def begin(self, frame: Frame, given: Given) -> FrameBody:
        """The tasks with the names of a frame. Raises NoetlError if a secret of theirs cannot be had."""
        return FrameBody(self, frame, given, await self.worker.open_session(self.work))

    async def session(self) -> Session | None:
        """The secrets of the stage. Raises NoetlError."""
        return await self.worker.open_session(self.work)

    def rendered(self, value: Any, session: Session | None, more: Mapping[str, Any]) -> Any:
        """A field of the cursor, with all names and what is only for it. Raises TemplateError."""
        secret = {} if session is None else session.names
        return templates.render_strict(value, {**all_names(self.work), **secret, **more}, host=self.host_for(session))

    def host_for(self, session: Session | None) -> Host:
        """What templates may call."""
        if session is None:
            return self.host
        return Host(now=self.host.now, token=session.tokens, encrypt_secret=session.encrypt)


class FrameBody:
    """The tasks of a stage, with the names of one frame."""

    def __init__(self, stage: StageBody, frame: Frame, given: Given, session: Session | None) -> None:
        plan = stage.plan
        self.timings: dict[str, float] = {}
        self._stage = stage
        self._first = frame.claim_row
        self._given = given
        self._session = session
        self._host = stage.host_for(session)
        place = FrameCoordinates(epoch=plan.epoch, slot=frame.slot, index=frame.claim_index)
        at = ResultCoordinates(
            tenant=plan.tenant, project=plan.project, execution_id=plan.execution_id, step=plan.step, run=plan.epoch,
            frame=place, attempt=1,
        )  # fmt: skip
        self._work = msgspec.structs.replace(stage.work, frame=place, effects=at.effect_keys())
        self._outside = stage.script.outside(outer_names(stage.work) | ({} if session is None else session.names))
        self._names = FrameNames(_window(stage, frame, given))

    async def run_row(self, index: int) -> Said:
        """Run for one row, or one group."""
        work = msgspec.structs.replace(self._work, index=self._first + index)
        if self._given.groups is not None:
            return await self._run_group(work, self._given.groups[index], self._first + index)
        return await self._run(work, self._names.of_row(index, self._given.rows[index]))

    async def _run_group(self, work: Work, group: Group, number: int) -> Said:
        table = TableValue(group.table)
        names = group_names(group.key, Rows(group.table), number, table)
        offered = {"key": group.key, "index": number, "row_count": group.table.num_rows, "table": table}
        work = msgspec.structs.replace(work, offered={"group": offered})
        return await self._run(work, names)

    async def run_whole(self) -> Said:
        """Run once for all rows of the frame."""
        offered = {name: value for name, value in self._names.frame.items() if name != "rows" or self._given.is_exact}
        work = msgspec.structs.replace(self._work, offered={"frame": offered})
        return await self._run(work, self._names.of_frame())

    def masked(self, value: Any) -> Any:
        """A value without the secrets that the stage has seen."""
        return value if self._session is None or not value else self._session.redactor.value(value)

    async def _run(self, work: Work, names: Mapping[str, Any]) -> Said:
        stage, outer = self._stage, self._outside.with_row(names)
        ended = await stage.worker.run_pipeline(work, stage.script, outer, self._host, self._session, self._took)
        assert not isinstance(ended, Suspension), "a row waits for its calls"
        traceback = ended.output.get("py", {}).get("traceback", "") if ended.error is not None else ""
        return Said(
            result=None if ended.error is not None else self.masked(ended.last),
            error=self.masked(ended.error),
            traceback=traceback,
            is_break=ended.status == "break",
            assigned=self.masked(ended.assigned),
        )

    def _took(self, task: str, seconds: float) -> None:
        self.timings[task] = self.timings.get(task, 0.0) + seconds


def _window(stage: StageBody, frame: Frame, given: Given) -> Window:
    """The frame as templates see it. Groups of a reduce have names of their own."""
    plan = stage.plan
    is_reduce = given.groups is not None
    rows: Sequence[Any] = () if is_reduce else given.rows if given.is_exact else Rows(given.table)
    return Window(
        iterator=stage.step.loop.iterator if stage.step.loop is not None else "group",
        index=frame.index,
        base_index=frame.base_index,
        slot=frame.slot,
        rows=rows,
        table=TableValue(given.table) if plan.policy.process == "frame" and not is_reduce else None,
        policy=stage.policy,
    )
