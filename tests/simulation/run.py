"""Executing a list of actions, and what to do when something did not hold."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import shutil
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tests.simulation.actions import Action, save
from tests.simulation.checks import check_everything
from tests.simulation.running import perform, write
from tests.simulation.shrink import shrink
from tests.simulation.world import Adapter, Violation, World, require

__all__ = ["ADAPTERS", "FAILURES", "Outcome", "execute", "kind_of", "report", "scratch_directory"]

ADAPTERS: tuple[Adapter, ...] = ("memory", "sqlite")
FAILURES = Path(__file__).parents[2] / "build" / "simulation"
_SHM = Path("/dev/shm")
_TELLING = 40


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run went. Two runs of the same actions have the same digest, and on any adapter the same log."""

    adapter: Adapter
    events: int
    digest: str
    log: str = ""
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """True when everything held."""
        return self.failure is None


def execute(actions: Sequence[Action], adapter: Adapter) -> Outcome:
    """Run the actions in order, then let every script end, then check everything."""
    with scratch_directory() as scratch:
        return asyncio.run(_execute(actions, adapter, scratch))


def report(actions: Sequence[Action], outcome: Outcome, name: str, folder: Path = FAILURES) -> str:
    """Save the action file of a failed run, and a shorter one that fails too; say how to replay them."""
    whole = save(list(actions), folder / f"{name}-{outcome.adapter}.json")
    kind = kind_of(outcome)
    shorter = shrink(list(actions), lambda fewer: kind_of(execute(fewer, outcome.adapter)) == kind)
    small = save(shorter, folder / f"{name}-{outcome.adapter}-small.json")
    again = execute(shorter, outcome.adapter)
    return (
        f"{name} on {outcome.adapter}: {outcome.failure}\n"
        f"  replay {len(actions)} actions: python -m tests.simulation --adapter {outcome.adapter} --replay {whole}\n"
        f"  or only {len(shorter)}: python -m tests.simulation --adapter {outcome.adapter} --replay {small}\n"
        f"  which gives: {again.failure}"
    )


def kind_of(outcome: Outcome) -> str:
    """What went wrong, without where and with which numbers."""
    what = (outcome.failure or "").partition(": ")[2]
    return re.sub(r"\d+", "#", what)[:_TELLING]


async def _execute(actions: Sequence[Action], adapter: Adapter, scratch: Path) -> Outcome:
    world = World(adapter, scratch)
    await world.open()
    at: str = "the beginning"
    failure: str | None = None
    try:
        for number, action in enumerate(actions):
            at = f"action {number}, {action}"
            await perform(world, action)
        at = "the end"
        await _settle(world)
        await check_everything(world)
    except Violation as violation:
        failure = f"{at}: {violation}"
    except Exception as error:  # an error that nobody expected is a finding too
        place = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{at}: {type(error).__name__}: {error} ({place.name}, {place.filename}:{place.lineno})"
    finally:
        with contextlib.suppress(Exception):
            await world.close()
    log = hashlib.sha256("".join(item.event.envelope_checksum for item in world.log).encode()).hexdigest()
    return Outcome(adapter=adapter, events=len(world.log), digest=world.trace.hexdigest(), log=log, failure=failure)


async def _settle(world: World) -> None:
    """The faults are over: what the network still holds is lost, and every writer tells its script to the end."""
    world.network.clear()
    for writer in world.writers:
        tries = 0
        while await write(world, writer, "none", None):
            tries += 1
            require(tries <= 3 * writer.beats, f"{writer.root.stream_id}: a writer does not come to its end")
        await world.observe()


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory in memory where there is one: what survives a power cut is simulated, not asked of a disk."""
    path = Path(tempfile.mkdtemp(prefix="noetl-simulation-", dir=_SHM if _SHM.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
