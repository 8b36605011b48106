"""The long run: thousands of executions while everything is killed, again and again, and a report of it.

    python -m tests.distributed.soak --executions 2000 --out benchmarks/reports

`make soak` runs it. It ends with 1 if something did not hold, and leaves what is needed to understand it in `build/`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.distributed.chaos import KINDS, SLOTS, Chaos, Outcome
from tests.distributed.parts import SETTINGS, installation
from tests.services.counter import counting
from tests.services.postgres_server import Database, Server, start, stop

__all__ = ["main", "report"]

_EXECUTIONS_BETWEEN_KILLS = 14


@contextlib.contextmanager
def _work() -> Iterator[Database]:
    """The database of the user's own that cursors work through; nobody kills it."""
    root = Path(tempfile.gettempdir()) / f"noetl-soak-{os.getpid()}"
    server = Server(root, start(root, SETTINGS))
    try:
        yield server.database("postgres")
    finally:
        stop(root)


def soak(executions: int, with_spark: int, kills: int, seed: int) -> Outcome:
    """One run from an empty installation to its last proof."""
    with (
        tempfile.TemporaryDirectory() as place,
        _work() as work,
        counting() as outside,
        installation(Path(place) / "soak", lease="8s") as installed,
    ):
        installed.add("projector", "projector", "--shard", "0/1")
        installed.add_worker("worker1", "--concurrency", str(SLOTS))
        installed.add_worker("worker2", "--concurrency", str(SLOTS), home=installed.home)
        chaos = Chaos(
            installed, outside, work, executions=executions, with_spark=with_spark, kills=kills, seed=seed, say=_say
        )
        with contextlib.closing(chaos):
            chaos.prepare()
            outcome = chaos.run()
            if outcome.problems:
                chaos.save(Path("build") / f"soak-{seed}")
        return outcome


def report(outcome: Outcome) -> str:
    """The run for people to read."""
    verdict = "everything held" if not outcome.problems else f"{len(outcome.problems)} things did not hold"
    lines = [
        f"# Soak: {outcome.executions} executions, {len(outcome.kills)} kills",
        "",
        f"{verdict[0].upper()}{verdict[1:]}. Seed {outcome.seed}; Python {platform.python_version()} on "
        f"{os.cpu_count()} cores.",
        "",
        "| | |",
        "|---|---|",
        f"| executions, of them with Spark stages | {outcome.executions}, {outcome.with_spark} |",
        f"| seconds until all had ended | {outcome.seconds:.0f} |",
        f"| executions a second, kills included | {outcome.executions / max(outcome.seconds, 1e-9):.2f} |",
        f"| events | {outcome.events} |",
        f"| effects by key | {outcome.effects} |",
        f"| calls that were made for them | {outcome.raw_calls} |",
        f"| requests that clients had to repeat | {outcome.submit_retries} |",
        f"| logs verified, in seconds | {outcome.verified}, {outcome.verify_seconds:.1f} |",
        "",
        "| killed | times | back after, median s | effects go on after, median s | at most s |",
        "|---|---|---|---|---|",
        *_by_kind(outcome),
        "",
        "The order of the kills: " + " ".join(kill.kind for kill in outcome.kills) + ".",
    ]
    if outcome.problems:
        lines += ["", "## What did not hold", "", *(f"- {problem[:1000]}" for problem in outcome.problems)]
    return "\n".join(lines) + "\n"


def _by_kind(outcome: Outcome) -> Iterator[str]:
    for kind in KINDS:
        kills = [kill for kill in outcome.kills if kill.kind == kind]
        moved = [kill.moved_after for kill in kills if kill.moved_after is not None]
        if kills and moved:
            up = statistics.median(kill.up_after for kill in kills)
            yield f"| {kind} | {len(kills)} | {up:.1f} | {statistics.median(moved):.1f} | {max(moved):.1f} |"
        elif kills:
            yield f"| {kind} | {len(kills)} | | | |"


def main() -> int:
    """Run and write the report; 0 if everything held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=2000)
    parser.add_argument("--with-spark", type=int, help="a tenth of them without it")
    parser.add_argument("--kills", type=int, help=f"one for {_EXECUTIONS_BETWEEN_KILLS} executions without it")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/reports"))
    asked = parser.parse_args()
    spark = asked.executions // 10 if asked.with_spark is None else asked.with_spark
    kills = asked.executions // _EXECUTIONS_BETWEEN_KILLS if asked.kills is None else asked.kills
    seed = random.randrange(1 << 32) if asked.seed is None else asked.seed
    outcome = soak(asked.executions, spark, kills, seed)
    asked.out.mkdir(parents=True, exist_ok=True)
    name = asked.out / f"soak-{asked.executions}"
    name.with_suffix(".json").write_text(json.dumps(outcome.document(), indent=1) + "\n")
    name.with_suffix(".md").write_text(report(outcome))
    _say(f"the report is in {name}.md")
    for problem in outcome.problems:
        _say(problem[:2000])
    return 1 if outcome.problems else 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
