"""python -m tests.simulation --schedules N [--seed S] [--adapter memory|sqlite|both] [--of ...] | --replay FILE

There are three kinds of schedules: of the ledger with all that is derived from it, of the runtime, and of the runtime
behind the effect barrier. Each seed stands for one of each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.simulation.actions import load
from tests.simulation.kept import load_schedule
from tests.simulation.plan import plan
from tests.simulation.run import ADAPTERS, Outcome, execute, report
from tests.simulation.runtime.plan import plan_schedule
from tests.simulation.runtime.run import report_schedule, run_schedule
from tests.simulation.runtime.schedule import Schedule

_ENOUGH = 5
_Run = Callable[[int, str], tuple[Outcome, Callable[[], str]]]
"""Runs a seed on an adapter; gives how it went, and what there is to say if it failed."""


def main() -> int:
    """Run schedules, or one action file. The exit code says whether everything held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=2000, metavar="N", help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed")
    parser.add_argument("--adapter", choices=[*ADAPTERS, "both"], default="both")
    parser.add_argument("--of", choices=[*_KINDS, "all"], default="all", help="which kind of schedules to run")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run a saved action file instead")
    options = parser.parse_args()
    adapters = ADAPTERS if options.adapter == "both" else (options.adapter,)
    if options.replay:
        return _replay(options.replay, adapters)
    kinds = list(_KINDS.values()) if options.of == "all" else [_KINDS[options.of]]
    return _schedules(range(options.seed, options.seed + options.schedules), adapters, kinds)


def _of_ledger(seed: int, adapter: str) -> tuple[Outcome, Callable[[], str]]:
    actions = plan(seed)
    outcome = execute(actions, adapter)
    return outcome, lambda: report(actions, outcome, f"seed{seed}")


def _of_runtime(seed: int, adapter: str) -> tuple[Outcome, Callable[[], str]]:
    schedule = plan_schedule(seed)
    outcome = run_schedule(schedule, adapter)
    return outcome, lambda: report_schedule(schedule, outcome, f"runtime{seed}")


def _of_barrier(seed: int, adapter: str) -> tuple[Outcome, Callable[[], str]]:
    schedule = plan_schedule(seed, barrier=True)
    outcome = run_schedule(schedule, adapter)
    return outcome, lambda: report_schedule(schedule, outcome, f"barrier{seed}")


_KINDS: dict[str, _Run] = {"ledger": _of_ledger, "runtime": _of_runtime, "barrier": _of_barrier}


def _replay(path: Path, adapters: tuple[str, ...]) -> int:
    if path.read_bytes().startswith(b"{"):
        outcomes = [run_schedule(load_schedule(path, Schedule), adapter) for adapter in adapters]
    else:
        outcomes = [execute(load(path), adapter) for adapter in adapters]
    for outcome in outcomes:
        _say(f"{outcome.adapter}: {outcome.failure or 'everything held'} ({outcome.events} events, {outcome.digest})")
    return int(not all(outcome.ok for outcome in outcomes))


def _schedules(seeds: range, adapters: tuple[str, ...], kinds: list[_Run]) -> int:
    started = time.monotonic()
    runs = events = failures = 0
    for seed in seeds:
        for run, adapter in ((run, adapter) for run in kinds for adapter in adapters):
            outcome, what_to_say = run(seed, adapter)
            runs, events = runs + 1, events + outcome.events
            if not outcome.ok:
                failures += 1
                _say(what_to_say())
        if sys.stderr.isatty():
            done = seed - seeds.start + 1
            sys.stderr.write(f"\r{done}/{len(seeds)} seeds, {events} events, {failures} failures ")
            sys.stderr.flush()
        if failures >= _ENOUGH:
            break
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    verdict = f"{failures} failed" if failures else "everything held"
    _say(f"{runs} schedules, {events} events in {time.monotonic() - started:.0f} s: {verdict}")
    return int(failures > 0)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
