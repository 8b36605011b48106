"""A verification of everything: what tasks have found in parallel, and what only the whole can show."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from noetl.data.bulk.checks import Checked, Suspect
from noetl.data.bulk.examining import Standing
from noetl.errors import Corruption, InvalidInput, NoetlError, NotFound, Unavailable
from noetl.kernel.chain import MODULUS
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Ledger
from noetl.ports.outbox import Outbox
from noetl.ports.projections import ProjectionStore
from noetl.replay.shares import progress_of
from noetl.replay.verify import Problem, Verifier, check_ledger_head

__all__ = ["Finding", "Report", "verify_all"]

_SCHEMA = "noetl.bulk.verification/1"
_MOST_FINDINGS = 100
_FAULTS: dict[str, type[NoetlError]] = {
    kind.__name__: kind for kind in (Corruption, InvalidInput, NotFound, Unavailable)
}
Run = Callable[[Standing], Awaitable[list[Checked]]]
"""Examines all shares of the lake up to where it stands, and gives what each task has seen."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A root of which something does not hold: in the lake's events, or between the log and what is live."""

    tenant_id: str
    stream_id: str
    problems: list[Problem]
    differences: list[str] = []


class Report(msgspec.Struct, kw_only=True):
    """What a verification of everything has shown."""

    schema: str = _SCHEMA
    ok: bool = True
    keyed: bool = False
    position: int = 0
    """Up to where the lake was read."""
    ledger_position: int = 0
    projected_to: int = 0
    roots: int = 0
    streams: int = 0
    events: int = 0
    unsealed: int = 0
    behind: int = 0
    """Roots that have events after the end of the lake: their heads and rows were not compared."""
    mismatches: int = 0
    rechecked: int = 0
    """Roots that had moved on while they were looked at, and were right when they were looked at again."""
    problems: list[Problem] = []
    """Of the ledger as a whole."""
    findings: list[Finding] = []
    """The first of the roots that do not hold; `mismatches` says how many there are."""
    seconds: float = 0.0
    events_per_second: float = 0.0
    timings: dict[str, float] = {}


async def verify_all(
    ledger: Ledger,
    projections: ProjectionStore,
    verifier: Verifier,
    projector: str,
    lake_position: int,
    run: Run,
    *,
    outbox: Outbox | None = None,
    is_whole: bool = True,
) -> Report:
    """Verify all roots of a lake against its ledger. `is_whole` says that `run` examines those of every tenant.

    What differs from what is live is looked at once more, by itself, because the ledger goes on meanwhile. Raises what
    a task has ended with.
    """
    begun = time.perf_counter()
    progress = await progress_of(projections, projector)
    standing = Standing(lake=lake_position, projected=progress.position, is_shared=progress.is_shared)
    report = Report(position=lake_position, projected_to=progress.position, keyed=ledger.mac_key is not None)
    parts = await run(standing)
    examined = time.perf_counter()
    for part in parts:
        if part.fault is not None:
            kind, message, hint = part.fault
            raise _FAULTS.get(kind, NoetlError)(message, hint=hint)
    _add_up(report, parts)
    await _look_again(report, [suspect for part in parts for suspect in part.suspects], verifier)
    report.ledger_position = await ledger.position()
    if report.events and not progress.position and not await _is_unprojected(outbox, report.ledger_position):
        report.problems.append(Problem(what="there is no live state to compare with: its rows are gone"))
    if is_whole:
        report.problems += _position_problems(parts, lake_position)
        report.problems += await _ledger_problems(ledger, parts, lake_position)
    report.ok = not report.problems and not report.mismatches
    report.seconds = round(time.perf_counter() - begun, 3)
    report.events_per_second = round(report.events / report.seconds, 1) if report.seconds else 0.0
    report.timings = {
        "examined": round(examined - begun, 3),
        "looked_again": round(time.perf_counter() - examined, 3),
        "tasks": round(sum(part.seconds for part in parts), 3),
        "tasks_reading_live": round(sum(part.reading_seconds for part in parts), 3),
    }
    return report


async def _is_unprojected(outbox: Outbox | None, position: int) -> bool:
    """True when no projector has begun: then every event still waits in the outbox to be told."""
    return outbox is not None and await outbox.pending_count() >= position


def _add_up(report: Report, parts: Sequence[Checked]) -> None:
    report.roots = sum(part.roots for part in parts)
    report.streams = sum(part.streams for part in parts)
    report.events = sum(part.events for part in parts)
    report.unsealed = sum(part.unsealed for part in parts)
    report.behind = sum(part.behind for part in parts)
    report.mismatches = sum(part.suspicious for part in parts)


async def _look_again(report: Report, suspects: Sequence[Suspect], verifier: Verifier) -> None:
    """A root whose events in the lake are as they were written may only have moved on; the others stay as they are."""
    for suspect in suspects[:_MOST_FINDINGS]:
        problems, differences = [*suspect.problems, *suspect.live], list[str]()
        if suspect.live:
            told = await _verified(suspect.root, verifier)
            if told is not None:
                problems, differences = [*suspect.problems, *told[0]], told[1]
        if problems or differences:
            report.findings.append(
                Finding(
                    tenant_id=suspect.root.tenant_id,
                    stream_id=suspect.root.stream_id,
                    problems=problems,
                    differences=differences,
                )
            )
        else:
            report.mismatches -= 1
            report.rechecked += 1


async def _verified(root: Stream, verifier: Verifier) -> tuple[list[Problem], list[str]] | None:
    """What a verification of one root says about it; None if it can say nothing."""
    try:
        found = await verifier.verify(root)
    except NoetlError:
        return None
    return list(found.problems), [str(difference) for difference in found.differences]


def _position_problems(parts: Sequence[Checked], last: int) -> list[Problem]:
    """Each position from 1 to the last is in the lake, once."""
    sums: Any = [
        (sum(part.events for part in parts), last, "events"),
        (sum(int(part.positions) for part in parts), last * (last + 1) // 2, "positions"),
        (sum(int(part.squares) for part in parts), last * (last + 1) * (2 * last + 1) // 6, "positions"),
    ]
    for found, expected, what in sums:
        if found != expected:
            return [Problem(what=f"the {what} of the lake are not those of 1 to {last}: noetl lake verify says which")]
    return []


async def _ledger_problems(ledger: Ledger, parts: Sequence[Checked], lake_position: int) -> list[Problem]:
    """No stream is missing, if the ledger has not gone on: the sum of all heads is under the seal of its own."""
    head = await ledger.ledger_head()
    if head.position != lake_position:
        return []
    total = sum(int(part.heads_total, 16) for part in parts) % MODULUS
    return check_ledger_head(head, sum(part.heads for part in parts), f"{total:064x}", ledger.mac_key)
