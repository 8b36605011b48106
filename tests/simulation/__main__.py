"""python -m tests.simulation --schedules N [--seed S] [--adapter memory|sqlite|both] | --replay FILE"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.simulation.actions import load
from tests.simulation.plan import plan
from tests.simulation.run import ADAPTERS, execute, report

_ENOUGH = 5


def main() -> int:
    """Run schedules, or one action file. The exit code says whether everything held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=2000, metavar="N", help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed")
    parser.add_argument("--adapter", choices=[*ADAPTERS, "both"], default="both")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run a saved action file instead")
    options = parser.parse_args()
    adapters = ADAPTERS if options.adapter == "both" else (options.adapter,)
    if options.replay:
        return _replay(options.replay, adapters)
    return _schedules(range(options.seed, options.seed + options.schedules), adapters)


def _replay(path: Path, adapters: tuple[str, ...]) -> int:
    outcomes = [execute(load(path), adapter) for adapter in adapters]
    for outcome in outcomes:
        _say(f"{outcome.adapter}: {outcome.failure or 'everything held'} ({outcome.events} events, {outcome.digest})")
    return int(not all(outcome.ok for outcome in outcomes))


def _schedules(seeds: range, adapters: tuple[str, ...]) -> int:
    started = time.monotonic()
    runs = events = failures = 0
    for seed in seeds:
        actions = plan(seed)
        for adapter in adapters:
            outcome = execute(actions, adapter)
            runs, events = runs + 1, events + outcome.events
            if not outcome.ok:
                failures += 1
                _say(report(actions, outcome, f"seed{seed}"))
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
