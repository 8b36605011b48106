"""The barrier: between a tool and all that follows, an effect is made durable; on the way there, one is looked for.

Without it the commit of a report is what makes an effect durable, and a command that was killed before that is run
again from its first task. With it each task that went well has its outcome kept at once, and whoever runs the command
again adopts what is there. See docs/explanation/effects.md for what somebody outside may see of either.
"""

from __future__ import annotations

import logging
from collections import Counter

import msgspec

from noetl.engine.outcome import failure
from noetl.engine.pipeline import RunTask, TaskOutcome
from noetl.errors import IntegrityMismatch
from noetl.observe import metrics
from noetl.payloads.effects import Effect, EffectStore
from noetl.runtime.notices import Listener, notice_of
from noetl.runtime.worker import Work, place_of
from noetl.tools.registry import Registry
from noetl.tools.secrets.redaction import Redactor

__all__ = ["Barrier"]

_METRIC = "noetl_effect_barrier_total"
_log = logging.getLogger("noetl.effects")


class Barrier:
    """The effects of one delivery of one command."""

    def __init__(
        self,
        effects: EffectStore,
        registry: Registry,
        work: Work,
        redactor: Redactor | None = None,
        notice: Listener | None = None,
    ) -> None:
        assert work.home is not None, "a command comes with the home of its execution"
        self._effects = effects
        self._registry = registry
        self._work = work
        self._home = work.home
        self._redactor = redactor
        self._notice = notice
        self._turns: Counter[tuple[str, int]] = Counter()
        """How many outcomes of a visit this delivery has kept or adopted. A rule may ask for another one."""

    async def adopt(self, asked: RunTask) -> TaskOutcome | None:
        """What the task has come to already, in a former delivery; None if it is to be run."""
        if not self._guards(asked):
            metrics.count(_METRIC, "skipped")
            return None
        try:
            found = await self._effects.find(place_of(self._work, asked), self._home, self._turn(asked))
        except IntegrityMismatch as problem:
            return self._damaged(asked, problem)
        return None if found is None else self._adopted(asked, found, "adopted")

    async def keep(self, asked: RunTask, said: TaskOutcome) -> TaskOutcome:
        """What counts as the task's outcome, durable: its own, or that of somebody who was faster.

        Raises what the store raises: an effect that cannot be made durable is not reported, as if this process had been
        killed, and whoever gets the command next runs the task under the same effect key.
        """
        if said.error is not None or not self._guards(asked):
            return said
        held = [said.result, said.extra]
        if self._redactor is not None and self._redactor.value(held) is not held:
            metrics.count(_METRIC, "skipped")
            return said  # with a secret in it it may not be kept, and without it it is another outcome
        mine = Effect(result=said.result, extra=said.extra, attempt=asked.attempt, duration_ms=said.duration_ms)
        try:
            first = await self._effects.keep(place_of(self._work, asked), self._home, mine, self._turn(asked))
        except IntegrityMismatch as problem:
            return self._damaged(asked, problem)
        if first is not None:
            return self._adopted(asked, first, "raced")
        metrics.count(_METRIC, "stored")
        self._turns[asked.task.name, asked.visit] += 1
        return said

    def _guards(self, asked: RunTask) -> bool:
        said = asked.task.side_effecting
        return self._registry.side_effecting(asked.task.kind, asked.fields) if said is None else said

    def _turn(self, asked: RunTask) -> int:
        return self._turns[asked.task.name, asked.visit]

    def _adopted(self, asked: RunTask, effect: Effect, outcome: str) -> TaskOutcome:
        metrics.count(_METRIC, outcome)
        self._turns[asked.task.name, asked.visit] += 1
        why = "it has had its effect in an earlier delivery, and is not run again"
        if outcome == "raced":
            why = "another worker has had its effect first: that outcome counts, not this one"
        self._say(asked, why)
        return TaskOutcome(
            result=effect.result, extra=effect.extra, duration_ms=effect.duration_ms, adopted=effect.attempt
        )

    def _damaged(self, asked: RunTask, problem: IntegrityMismatch) -> TaskOutcome:
        metrics.count(_METRIC, "damaged")
        _log.error("task '%s' of execution %s: %s", asked.task.name, self._work.execution_id, problem)
        message = f"task '{asked.task.name}' was not run: {problem}"
        return TaskOutcome(error=failure("EFFECT_DAMAGED", message, kind="storage_access"))

    def _say(self, asked: RunTask, why: str) -> None:
        work = self._work
        _log.info("task '%s' of step '%s' of execution %s: %s", asked.task.name, work.step.name, work.execution_id, why)
        if self._notice is not None:
            about = notice_of(work, asked, "attempt")
            self._notice(msgspec.structs.replace(about, what="log", stream="noetl", text=why))
