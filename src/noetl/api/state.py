"""What an execution was at some moment, and the proof that its log is what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.kernel.ids import MAX_ID
from noetl.kernel.time import parse_time

if TYPE_CHECKING:
    from datetime import datetime

    from noetl.replay.service import Cutoff, Replayed
    from noetl.replay.verify import Verification

__all__ = ["Proof", "State", "cutoff_of", "proof_of", "state_of"]

_LEAST_EVENT_ID = 1 << 38  # ids are made of milliseconds; this one is of the first minute they counted from


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an execution, rebuilt from its log. `surfaces` has the rows of each surface by its name."""

    execution_id: int
    status: str | None
    event_count: int
    last_event_id: int | None
    position: int
    surfaces: Mapping[str, Sequence[Mapping[str, Any]]]
    checksums: Mapping[str, str]
    checksum: str
    snapshot: Mapping[str, Any]
    """Whether a snapshot was used, at which position, how many events were folded after it, and why none was."""

    def __repr__(self) -> str:
        return f"State({self.execution_id}, {self.status}, {self.event_count} events, {self.checksum[:12]})"


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying an execution has shown. It is true when nothing was found."""

    execution_id: int
    events: int
    chain_ok: bool
    keyed: bool
    parity: bool
    first_bad_event: int | None = None
    problems: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """True when every event is what was written and the live state is what the log gives."""
        return self.chain_ok and self.parity

    def __bool__(self) -> bool:
        return self.ok

    def raise_for_status(self) -> None:
        """Raise IntegrityMismatch if something was found."""
        if not self.ok:
            found = self.problems[0] if self.problems else "live and replayed state differ"
            raise IntegrityMismatch(f"execution {self.execution_id}: {found}", hint="do not trust this log")


def cutoff_of(at: int | str | datetime | None) -> Cutoff:
    """The moment that a caller means: an event id, a position of the ledger, or a time.

    Event ids carry the time in milliseconds and are far larger than any position, so a number says which it is.
    """
    from datetime import datetime

    from noetl.replay.service import Cutoff

    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidInput(f"{at} has no time zone", hint="say which one: at.astimezone(), or datetime.now(UTC)")
        at = at.isoformat()
    if isinstance(at, str) and at.isdecimal():
        at = int(at)
    if isinstance(at, int):
        if not 0 < at <= MAX_ID:
            raise InvalidInput(f"{at} is neither an event id nor a position", hint="see run.events()")
        return Cutoff(event_id=at) if at >= _LEAST_EVENT_ID else Cutoff(position=at)
    return Cutoff() if at is None else Cutoff(time=parse_time(at))


def state_of(replayed: Replayed, execution_id: int) -> State:
    """A replay as users see it."""
    from noetl.replay.document import snapshot_of

    state = replayed.state
    root = state.root
    return State(
        execution_id=execution_id,
        status=root.status,
        event_count=root.event_count,
        last_event_id=root.last_event_id or None,
        position=replayed.position,
        surfaces={name: [row.as_dict() for _, row in state.rows(name)] for name in state.surfaces},
        checksums=replayed.bundle(),
        checksum=replayed.checksum(),
        snapshot=snapshot_of(replayed),
    )


def proof_of(found: Verification, execution_id: int) -> Proof:
    """A verification as users see it."""
    differences = [f"{one.surface} row {one.row}, field '{one.field}' differs" for one in found.differences]
    return Proof(
        execution_id=execution_id,
        events=found.events,
        chain_ok=found.chain_ok,
        keyed=found.keyed,
        parity=found.parity,
        first_bad_event=found.first_bad_event,
        problems=[*(problem.what for problem in found.problems), *differences],
    )
