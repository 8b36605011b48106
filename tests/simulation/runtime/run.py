"""Running a schedule, and what to do when something did not hold."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from noetl.playbook.parse import load
from noetl.runtime import loading, worker
from tests.simulation.kept import save_schedule
from tests.simulation.run import FAILURES, Outcome, kind_of, scratch_directory
from tests.simulation.runtime.checks import Reached, check_end, check_live, reached
from tests.simulation.runtime.documents import case_of
from tests.simulation.runtime.gate import adopt_tasks
from tests.simulation.runtime.loop import Stuck, run_virtually
from tests.simulation.runtime.operator import Operator
from tests.simulation.runtime.schedule import Fault, Schedule
from tests.simulation.runtime.world import World
from tests.simulation.shrink import shrink
from tests.simulation.world import Violation

__all__ = ["expected_of", "report_schedule", "run_schedule"]

_load = functools.cache(load)
"""Documents are read once in a session, not once in a process's life."""


def run_schedule(schedule: Schedule, adapter: str) -> Outcome:
    """Run it, let everybody come to rest, and check everything."""
    expected = expected_of(schedule.document, schedule.variant, schedule.barrier)
    with scratch_directory() as scratch, _virtual_time():
        world = World(schedule, adapter, scratch)
        failure = _run(world, expected)
    log = "".join(item.event.envelope_checksum for item in world.log)
    digest = hashlib.sha256(log.encode()).hexdigest()
    return Outcome(adapter=adapter, events=len(world.log), digest=digest, log=digest, failure=failure)


@functools.cache
def expected_of(document: str, variant: int, barrier: bool = False) -> Reached:
    """What a document comes to when nothing goes wrong."""
    found: list[Reached] = []
    with scratch_directory() as scratch, _virtual_time():
        world = World(Schedule(document=document, variant=variant, barrier=barrier), "memory", scratch)
        failure = _run(world, None, found)
    if failure is not None:
        raise Violation(f"{document}/{variant} without faults: {failure}")
    return found[0]


def report_schedule(schedule: Schedule, outcome: Outcome, name: str, folder: Path = FAILURES) -> str:
    """Save a schedule that failed, and one with fewer faults that fails too; say how to replay them."""
    whole = save_schedule(schedule, folder / f"{name}-{outcome.adapter}.json")
    kind = kind_of(outcome)

    def fails(fewer: list[Fault]) -> bool:
        return kind_of(run_schedule(_with(schedule, fewer), outcome.adapter)) == kind

    fewer = _with(schedule, shrink(list(schedule.faults), fails, tries=60))
    small = save_schedule(fewer, folder / f"{name}-{outcome.adapter}-small.json")
    command = f"python -m tests.simulation --adapter {outcome.adapter} --replay"
    return (
        f"{name} on {outcome.adapter}: {outcome.failure}\n"
        f"  replay {len(schedule.faults)} faults: {command} {whole}\n"
        f"  or only {len(fewer.faults)}: {command} {small}"
    )


def _with(schedule: Schedule, faults: list[Fault]) -> Schedule:
    return msgspec.structs.replace(schedule, faults=tuple(faults))


def _run(world: World, expected: Reached | None, found: list[Reached] | None = None) -> str | None:
    case = case_of(world.schedule.document, world.schedule.variant)

    async def main() -> None:
        adopt_tasks(asyncio.get_running_loop())
        await world.open()
        operator = Operator(world, case)
        try:
            await operator.see_through()
            if not world.violations:
                await check_live(world, list(operator.processes.values()))
                await operator.close()
            await check_end(world, expected, case.exact)
            if found is not None:
                found.append(await reached(world))
        finally:
            await world.store.close()

    try:
        run_virtually(main(), lambda what: None if "Killed" in what else world.blame(what))
    except (Violation, Stuck) as violation:
        return f"the end: {violation}"
    except Exception as error:  # an error that nobody expected is a finding too
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"the end: {type(error).__name__}: {error} ({place.name}, {place.filename}:{place.lineno})"
    return None


@contextlib.contextmanager
def _virtual_time() -> Iterator[None]:
    """What a worker measures is the run's time, and no document is read twice."""

    def monotonic() -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "time", SimpleNamespace(monotonic=monotonic, perf_counter=monotonic))
        patch.setattr(loading, "load", _load_once)
        yield


def _load_once(text: str, file: str, *, kinds: object = ()) -> object:
    return _load(text, file)
