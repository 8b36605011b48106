"""The Spark host: the slots of a stage in Python workers of Spark, packed into one carrier for each core.

A task of Spark is not a frame: it carries slots that claim, run and commit many frames, over HTTP, with the stage's
token. So a task that is retried, or an executor that dies, costs the frames which it had in hand and nothing else; and
what came of the stage is counted from its log, never from what the job returns.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl.data.frame.protocol import FramePlane, StagePlan
from noetl.data.session import SessionConf, SparkSessions, session_conf
from noetl.data.session.defaults import stays_here
from noetl.data.session.tasks import LongTasks, is_loss
from noetl.errors import NoetlError
from noetl.kernel.event import Json
from noetl.runtime.stages.carriers import GONE, Errand, Lost
from noetl.runtime.stages.documents import playbook_of
from noetl.runtime.stages.placement import Placement, is_worth_it, why_no_spark, why_not_on_spark
from noetl.runtime.stages.plane import KeptPlane
from noetl.settings import Settings

if TYPE_CHECKING:
    from noetl.runtime.stages.keeper import Host
    from noetl.runtime.stages.stages import Stages

__all__ = ["NotOnSpark", "SparkHost", "SparkOrWorker"]

_DIRECTORY_VARIABLE = "NOETL_DIRECTORY"
_log = logging.getLogger("noetl.stages")
_busy: dict[tuple[int, int], tuple[int, int]] = {}
"""The stages that hold cores of this process's Spark: the root of their tree of executions, and how deep they are."""


class NotOnSpark(NoetlError):
    """A step asks for Spark, and cannot run there."""

    code = "ENGINE_UNAVAILABLE"


class SparkHost:
    """Runs slots in the Python workers of the process's Spark session."""

    def __init__(self, settings: Settings, home: Path, directory: Path, stages: Stages) -> None:
        self.settings = settings
        self._home = home
        self._directory = directory.absolute()
        self._stages = stages
        self._is_wary = False
        """The last round has lost somebody."""

    @property
    def sessions(self) -> SparkSessions:
        """The ones of this process."""
        return SparkSessions.shared(self._home)

    async def run(self, plan: StagePlan, plane: FramePlane, slots: Sequence[int]) -> None:
        """Run these slots until each has drained and said so, or those that ran them were lost.

        The keeper begins another round for what lost ones have left. That round takes these frames one at a time: a
        frame that takes its process with it is to use up its own attempts, not those of all around it. Raises
        NoetlError for what would be no better the next time.
        """
        conf = session_conf(self.settings.spark, playbook_of(plan.document, plan.file).executor.spark)
        place = (plan.execution_id, plan.stage_id)
        _busy[place] = (plan.root_execution_id or plan.execution_id, plan.depth)
        try:
            if not self._is_wary or await self._run(conf, plan, plane, slots[:1], careful=True):
                self._is_wary = not await self._run(conf, plan, plane, slots)
        finally:
            del _busy[place]

    def why_not(self, plan: StagePlan) -> str | None:
        """What keeps a stage from running here; None if it can. Raises InvalidSetting."""
        playbook = playbook_of(plan.document, plan.file)
        conf = session_conf(self.settings.spark, playbook.executor.spark)
        return why_no_spark() or why_not_on_spark(playbook, playbook.steps[plan.step], self.settings, conf)

    async def _run(
        self, conf: SessionConf, plan: StagePlan, plane: FramePlane, slots: Sequence[int], *, careful: bool = False
    ) -> bool:
        """Run slots, on as many cores as there are; False if some of them were lost."""

        async def open_tasks() -> tuple[LongTasks, str]:
            tasks = await LongTasks.open(self.sessions, conf, () if conf.is_local else (self._directory,))
            host = None if stays_here(conf.master) else await tasks.driver_host()
            return tasks, await self._stages.url(host)

        key = (str(self._home), msgspec.json.encode(conf, order="sorted"), self._mark)
        async with self._stages.carriers.crew(key, open_tasks, {_DIRECTORY_VARIABLE: self._mark}) as crew:
            tasks = crew.tasks
            assert isinstance(tasks, LongTasks)
            host = None if stays_here(conf.master) else await tasks.driver_host()
            count = min(len(slots), tasks.cores)
            if isinstance(plane, KeptPlane):
                await plane.placed(self._placing(tasks, conf, count, len(slots)))
            async with self._stages.address(plan, host) as at:
                lost = await crew.run(
                    [
                        Errand(
                            url=at.url,
                            token=at.token,
                            stage_id=plan.stage_id,
                            worker=f"spark/{number}",
                            slots=tuple(slots[number::count]),
                            is_careful=careful,
                        )
                        for number in range(count)
                    ],
                    f"{plan.step} of execution {plan.execution_id}: {len(slots)} slots",
                )
        if lost is None:
            return True
        _judge(lost, plan)
        return False

    def _placing(self, tasks: LongTasks, conf: SessionConf, count: int, slots: int) -> Json:
        """Where the stage runs, for those who want to look."""
        info = self.sessions.info()
        ui = None if info is None else info.ui
        facts: Json = {"host": "spark", "master": conf.master, "application": tasks.application, "ui": ui}
        return {**facts, "tasks": count, "slots": slots}

    @property
    def _mark(self) -> str:
        """Tells Python workers apart: modules of a directory, once imported, stay imported."""
        return hashlib.sha256(str(self._directory).encode()).hexdigest()[:16]


def _judge(lost: Lost, plan: StagePlan) -> None:
    """A worker that was lost is no more than that: its frames are run again. Raises NotOnSpark for the rest."""
    told = lost.told
    if told is GONE or is_loss(told):
        _log.warning("a Python worker, an executor or the JVM of step '%s' was lost: %s", plan.step, told.message)
        _log.info("what Spark said of step '%s': %s", plan.step, told.detail)
        return
    _log.error("the slots of step '%s' failed on Spark: %s", plan.step, told.detail)
    raise NotOnSpark(told.message) from lost


class SparkOrWorker:
    """The host of a stage that may run on either. It is decided once, when the input is known, and then holds."""

    def __init__(self, spark: SparkHost, worker: Host, *, must: bool) -> None:
        """With `must` a stage that cannot run on Spark fails."""
        self._spark = spark
        self._worker = worker
        self._must = must
        self._placement: Placement | None = None

    def place(self, plan: StagePlan, rows: int | None, frames: int = 0) -> Placement:
        """Where the stage belongs. What is small is not asked whether it could run on Spark."""
        self._placement = self._placement or self._placed(plan, rows, frames)
        return self._placement

    async def run(self, plan: StagePlan, plane: FramePlane, slots: Sequence[int]) -> None:
        """Run these slots where the stage belongs. Raises NotOnSpark."""
        placement = self.place(plan, None)
        if placement.host is None:
            raise NotOnSpark(placement.reason, hint="say engine: worker, or leave engine out")
        await (self._spark if placement.host == "spark" else self._worker).run(plan, plane, slots)

    def _placed(self, plan: StagePlan, rows: int | None, frames: int) -> Placement:
        asked = "spark" if self._must else "auto"
        is_warm = self._spark.sessions.info() is not None
        if not self._must and not is_worth_it(plan, rows, frames, warm=is_warm):
            reason = "workers are done before Spark would pay"
            return Placement(asked=asked, host="worker", reason=reason, rows=rows)
        try:
            problem = self._spark.why_not(plan)
        except NoetlError as error:
            problem = str(error)
        if problem is not None:
            return Placement(asked=asked, host=None if self._must else "worker", reason=problem)
        if _is_nested(plan):
            reason = "slots of another stage of this run, which may wait for it, hold the cores of Spark"
            return Placement(asked=asked, host="worker", reason=reason)
        reason = "the step asks for it" if self._must else "workers would need longer than Spark with its start"
        return Placement(asked=asked, host="spark", reason=reason, rows=rows)


def _is_nested(plan: StagePlan) -> bool:
    """Whether slots of another stage may be waiting for this one. They hold the cores that it would wait for."""
    root = plan.root_execution_id or plan.execution_id
    return any(root == other and depth < plan.depth for other, depth in _busy.values())
