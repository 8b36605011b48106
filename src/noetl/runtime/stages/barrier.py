"""The barrier of frames: the outcome of a whole frame, kept under a key that every attempt at the frame derives.

The tasks of rows have a barrier of their own. This one stands behind it: a frame that was run to its end, and whose
slot or keeper was lost before it was committed, is not run again. The next slot that gets it commits what is there. The
output is durable before the outcome is kept, and the outcome before anything is said of it.
"""

from __future__ import annotations

import logging

import msgspec

from noetl.data.frame.protocol import Frame, FrameOutcome, StagePlan
from noetl.kernel import canonical
from noetl.kernel.names import FrameCoordinates, ResultCoordinates
from noetl.observe import metrics
from noetl.payloads.effects import Effect, EffectStore
from noetl.payloads.results import ResultStore
from noetl.playbook.document import Step
from noetl.tools.registry import Registry

__all__ = ["FrameBarrier", "has_effects", "place_of_frame"]

_METRIC = "noetl_effect_barrier_total"
_log = logging.getLogger("noetl.effects")


def place_of_frame(plan: StagePlan, frame: Frame) -> ResultCoordinates:
    """Where the output of a frame is, as far as this attempt makes it."""
    return ResultCoordinates(
        tenant=plan.tenant,
        project=plan.project,
        execution_id=plan.execution_id,
        step=plan.step,
        run=plan.epoch,
        frame=FrameCoordinates(epoch=plan.epoch, slot=frame.slot, index=frame.index),
        attempt=frame.attempt,
    )


def has_effects(step: Step, registry: Registry) -> bool:
    """Whether a step has a task that somebody outside may notice."""
    return any(
        registry.side_effecting(task.kind, task.fields) if task.side_effecting is None else task.side_effecting
        for task in step.tasks
    )


class FrameBarrier:
    """The outcomes of one stage's frames."""

    def __init__(self, effects: EffectStore, results: ResultStore, plan: StagePlan) -> None:
        self._effects = effects
        self._results = results
        self._plan = plan

    async def adopt(self, frame: Frame) -> FrameOutcome | None:
        """What the frame has come to in an earlier attempt; None if it is to be run. Raises IntegrityMismatch."""
        if frame.attempt == 1:
            return None  # nobody was given it before
        found = await self._effects.find(place_of_frame(self._plan, frame), self._plan.home)
        return None if found is None else await self._adopted(frame, found, "adopted")

    async def keep(self, frame: Frame, outcome: FrameOutcome) -> FrameOutcome:
        """The outcome that counts, durable: this one, or that of an attempt which was faster.

        A frame with an error, or with a row that has one, is not kept: what failed is to be tried again.
        """
        if outcome.error is not None or outcome.outcomes.get("error"):
            return outcome
        said = msgspec.structs.replace(outcome, frame_id=0, token="")
        try:
            mine = Effect(result=msgspec.to_builtins(said), attempt=frame.attempt)
            first = await self._effects.keep(place_of_frame(self._plan, frame), self._plan.home, mine)
        except canonical.NotCanonical:
            metrics.count(_METRIC, "skipped")
            return outcome  # the keeper will say what is wrong with it
        if first is None:
            metrics.count(_METRIC, "stored")
            return outcome
        return await self._adopted(frame, first, "raced") or outcome

    async def _adopted(self, frame: Frame, effect: Effect, how: str) -> FrameOutcome | None:
        kept = msgspec.convert(effect.result, FrameOutcome)
        if kept.output is not None and not await self._results.exists(kept.output):
            _log.warning(
                "frame %s of step '%s' was run before, but its output is gone: it is run again",
                frame.frame_id, self._plan.step,
            )  # fmt: skip
            return None
        metrics.count(_METRIC, how)
        _log.info("frame %s of step '%s': attempt %s has run it", frame.frame_id, self._plan.step, effect.attempt)
        return msgspec.structs.replace(kept, frame_id=frame.frame_id, token=frame.token, adopted=effect.attempt)
