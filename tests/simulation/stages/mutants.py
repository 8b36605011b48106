"""Bugs in keeping stages: each is planted in the shipped code, and the schedules must find it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from noetl.data.frame.protocol import FrameOutcome
from noetl.data.frame.state import FrameState, Turn
from noetl.data.frame.table import FrameTable, Verdict
from noetl.kernel.event import Envelope, Json
from noetl.kernel.stamp import Batch
from noetl.runtime.stages import desk as desks
from noetl.runtime.stages.desk import Desk
from noetl.runtime.stages.keeper import StageKeeper
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.stages.run import run_stage
from tests.simulation.stages.schedule import plan_stage

__all__ = ["STAGE_MUTANTS", "hunt_stage"]


def hunt_stage(mutant: Mutant, seeds: range) -> tuple[int, str] | None:
    """The first of the seeds whose schedule fails with the bug in place, or None."""
    for seed in [*range(mutant.first_seed, seeds.stop), *range(seeds.start, mutant.first_seed)]:
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)
            failure = run_stage(plan_stage(seed))
        if failure is not None:
            return seed, failure
    return None


def _any_token(patch: pytest.MonkeyPatch) -> None:
    """Whoever knows the number of a frame may end it, whoever holds it."""

    def holding(self: FrameTable, frame_id: int, _: str) -> FrameState | None:
        frame = self.find(frame_id)
        return frame if frame is not None and frame.status == "running" else None

    patch.setattr(FrameTable, "_holding", holding)
    patch.setattr(FrameTable, "renew", lambda *_: ([], []))


def _twice(patch: pytest.MonkeyPatch) -> None:
    """A frame that has ended is ended again by whoever comes late."""
    commit = FrameTable.commit

    def forgetful(self: FrameTable, turn: Turn, outcome: FrameOutcome, recorded: Json | None = None) -> Verdict:
        if self.ended_by(outcome.frame_id) and outcome.error is None:
            frame = FrameState(
                frame_id=outcome.frame_id, slot=0, index=0, claim_index=0, claim_row=0, base_index=0, row_count=0,
                status="ended", attempt=1,
            )  # fmt: skip
            turn.say("frame.committed", frame, "COMPLETED", payload={"rows": outcome.rows}, payload_ref=outcome.output)
            return Verdict(frame)
        return commit(self, turn, outcome, recorded)

    patch.setattr(FrameTable, "commit", forgetful)


def _never_lapsing(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether leases have lapsed."""
    patch.setattr(FrameTable, "lapsed", lambda *_: [])
    patch.setattr(FrameTable, "leave", lambda *_: None)


def _not_taken_over(patch: pytest.MonkeyPatch) -> None:
    """A new keeper believes that the slots of the one before it are still at work."""
    patch.setattr(FrameTable, "take_over", lambda *_: None)


def _any_version(patch: pytest.MonkeyPatch) -> None:
    """Two keepers write to one stream, and neither finds out."""

    def careless(**fields: Any) -> Batch:
        return Batch(**{**fields, "expected_version": None})

    patch.setattr(desks, "Batch", careless)


def _doubt_is_denial(patch: pytest.MonkeyPatch) -> None:
    """An append without an answer was surely not written."""

    async def deny(self: Desk) -> None:
        self._doubtful = None

    patch.setattr(Desk, "_check_doubtful", deny)


def _endless_attempts(patch: pytest.MonkeyPatch) -> None:
    """What a frame has used up of its attempts is forgotten with its keeper."""
    fold = FrameTable.fold

    def mild(self: FrameTable, event: Envelope, assigned: Json) -> None:
        fold(self, event, assigned)
        frame = self.find(event.frame_id or 0)
        if frame is not None and event.event_type == "frame.abandoned":
            frame.spent = 0

    patch.setattr(FrameTable, "fold", mild)


def _claims_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A claim that is opened again becomes another frame."""
    number = FrameTable._number

    def numbered(self: FrameTable, frame: FrameState) -> None:
        number(self, frame)
        self._claims.clear()

    patch.setattr(FrameTable, "_number", numbered)


def _slices_from_the_start(patch: pytest.MonkeyPatch) -> None:
    """A new keeper counts the slices that it has given out itself, and no others."""
    fold = FrameTable._fold_dispatched

    def folded(self: FrameTable, event: Envelope) -> None:
        before = self._slices
        fold(self, event)
        self._slices = before

    patch.setattr(FrameTable, "_fold_dispatched", folded)


def _rest_alone(patch: pytest.MonkeyPatch) -> None:
    """The rest of a frame begins again at the first row of its claim."""
    rest = FrameTable._open_rest

    def opened(self: FrameTable, turn: Turn, parent: FrameState, outcome: FrameOutcome) -> FrameState:
        frame = rest(self, turn, parent, outcome)
        frame.claim_row = parent.claim_row
        return frame

    patch.setattr(FrameTable, "_open_rest", opened)


def _parked_for_good(patch: pytest.MonkeyPatch) -> None:
    """Who was too early is not asked again when something has changed."""

    def park(self: Desk, parked: Sequence[Any], *, has_changed: bool) -> None:
        self._parked += parked

    patch.setattr(Desk, "_park", park)
    patch.setattr("noetl.runtime.stages.plane._PATIENCE", None)


def _replaced_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """A slot that is begun anew goes on beside the one it was to replace."""
    patch.setattr(FrameTable, "_seat", lambda *_: None)
    patch.setattr(FrameTable, "_drop", lambda *_: None)
    patch.setattr(FrameTable, "leave", lambda *_: None)
    patch.setattr(StageKeeper, "_watch", _asleep)


async def _asleep(_: StageKeeper) -> None:
    return None


def _unannounced(patch: pytest.MonkeyPatch) -> None:
    """A keeper that finds nothing to take over says nothing, and the one before it goes on."""
    patch.setattr(Turn, "begin", lambda *_: None)


def _seal_too_early(patch: pytest.MonkeyPatch) -> None:
    """What a keeper before this one has written is not sealed."""
    load = Desk.load

    async def loaded(self: Desk) -> Any:
        found = await load(self)
        self._tree = type(self._tree)()
        return found

    patch.setattr(Desk, "load", loaded)


STAGE_MUTANTS = (
    Mutant(name="any token", breaks="a slot that has lost its frame ends it", plant=_any_token),
    Mutant(name="ended twice", breaks="a late commit counts", plant=_twice),
    Mutant(name="never lapsing", breaks="frames of dead slots are never run again", plant=_never_lapsing),
    Mutant(
        name="not taken over",
        breaks="frames of a lost keeper are never run again",
        plant=_not_taken_over,
        first_seed=155,
    ),
    Mutant(name="any version", breaks="two keepers at once", plant=_any_version),
    Mutant(name="doubt is denial", breaks="an append that landed is forgotten", plant=_doubt_is_denial),
    Mutant(name="endless attempts", breaks="attempts are not counted over keepers", plant=_endless_attempts),
    Mutant(name="claims forgotten", breaks="rows of one claim run twice", plant=_claims_forgotten),
    Mutant(name="slices from the start", breaks="slices run twice after a crash", plant=_slices_from_the_start),
    Mutant(name="rest alone", breaks="rows of a rest have the keys of others", plant=_rest_alone),
    Mutant(name="parked for good", breaks="slots wait for ever", plant=_parked_for_good),
    Mutant(name="replaced unnoticed", breaks="frames of a replaced slot are nobody's", plant=_replaced_unnoticed),
    Mutant(
        name="unannounced",
        breaks="a keeper writes after another has ended the stage",
        plant=_unannounced,
        first_seed=1830,
    ),
    Mutant(name="sealed in part", breaks="the seal misses events", plant=_seal_too_early),
)
