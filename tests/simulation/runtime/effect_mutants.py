"""Bugs in the barrier: each is planted in the shipped code, and the schedules must find it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from noetl.engine.pipeline import RunTask, TaskOutcome
from noetl.kernel.names import ResultCoordinates
from noetl.payloads.effects import EffectStore
from noetl.ports.objects import ObjectStore
from noetl.runtime import barrier as barring
from noetl.runtime.barrier import Barrier
from noetl.runtime.worker import Work, place_of
from tests.simulation.mutants.mutant import Mutant

__all__ = ["EFFECT_MUTANTS"]


def _across_visits(patch: pytest.MonkeyPatch) -> None:
    """Who comes to a task again, by a jump, is given what it came to the first time."""

    def first_visit(work: Work, asked: RunTask) -> ResultCoordinates:
        return replace(place_of(work, asked), visit=1)

    patch.setattr(barring, "place_of", first_visit)
    patch.setattr(Barrier, "_turn", lambda *_: 0)


def _errors_kept(patch: pytest.MonkeyPatch) -> None:
    """A failure is kept like a success, and whoever gets the command again takes it for one."""
    keep = Barrier.keep

    async def careless(self: Barrier, asked: RunTask, said: TaskOutcome) -> TaskOutcome:
        if said.error is not None:
            await keep(self, asked, replace(said, error=None))
            return said
        return await keep(self, asked, said)

    patch.setattr(Barrier, "keep", careless)


def _never_kept(patch: pytest.MonkeyPatch) -> None:
    """An outcome is reported, and will surely be durable some day."""

    async def keep(_: Barrier, __: RunTask, said: TaskOutcome) -> TaskOutcome:
        return said

    patch.setattr(Barrier, "keep", keep)


def _found_and_done_again(patch: pytest.MonkeyPatch) -> None:
    """Who finds an outcome calls the tool all the same."""
    adopt = Barrier.adopt

    async def deaf(self: Barrier, asked: RunTask) -> TaskOutcome | None:
        await adopt(self, asked)
        return None

    patch.setattr(Barrier, "adopt", deaf)


def _last_counts(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes last replaces what was kept first."""

    def replacing(self: EffectStore, objects: ObjectStore) -> None:
        self._objects = cast(ObjectStore, _Replacing(objects))

    patch.setattr(EffectStore, "__init__", replacing)


class _Replacing:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def put(self, key: str, data: Any) -> bool:
        written: bool = await self._inner.put(key, data, overwrite=True)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


EFFECT_MUTANTS = (
    Mutant(name="adopted across visits", breaks="a jump back has no effect", plant=_across_visits),
    Mutant(name="errors kept", breaks="a failure is adopted as a success", plant=_errors_kept),
    Mutant(name="never kept", breaks="an effect is reported before it is durable", plant=_never_kept),
    Mutant(name="found and done again", breaks="a durable effect happens again", plant=_found_and_done_again),
    Mutant(name="last counts", breaks="an outcome that was adopted is replaced", plant=_last_counts),
)
